// SPDX-License-Identifier: Apache-2.0
#include "sampling/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/candidates.h"

namespace longspec {

LogSoftmax::LogSoftmax(std::span<const float> logits) : logits_(logits) {
  const auto most = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  log_sum_ = most + std::log(sum);
}

// A chance of nothing is the least number there is: JSON has no infinity.
float LogSoftmax::Of(int32_t token) const {
  const auto logprob =
      static_cast<float>(static_cast<double>(logits_[static_cast<size_t>(token)]) - log_sum_);
  return std::max(logprob, std::numeric_limits<float>::lowest());
}

void LogSoftmax::Likeliest(int n, std::vector<TokenLogprob>& out) const {
  out.clear();
  if (n <= 0) return;
  std::vector<Candidate> best;
  FirstCandidates(logits_, static_cast<size_t>(n), best);
  for (const auto& [logit, token] : best) out.push_back({.token = token, .logprob = Of(token)});
}

}  // namespace longspec
