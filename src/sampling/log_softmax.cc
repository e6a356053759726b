// SPDX-License-Identifier: Apache-2.0
#include "sampling/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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
  const auto most = static_cast<size_t>(std::clamp<int64_t>(n, 0, static_cast<int64_t>(logits_.size())));
  if (most == 0) return;
  std::vector<int32_t> order(logits_.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                    [this](int32_t a, int32_t b) {
                      const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < most; ++i) out.push_back({.token = order[i], .logprob = Of(order[i])});
}

}  // namespace longspec
