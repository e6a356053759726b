// SPDX-License-Identifier: Apache-2.0
#include "sampling/top_logits.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "sampling/candidates.h"

namespace longspec {

int TopLogits(std::span<const float> logits, std::span<int32_t> tokens) {
  LS_CHECK(tokens.size() <= kMaxTopLogits);
  std::vector<Candidate> first;
  FirstCandidates(logits, tokens.size(), first);
  size_t n = 0;
  for (; n < first.size() && first[n].first > -std::numeric_limits<float>::infinity(); ++n)
    tokens[n] = first[n].second;
  return static_cast<int>(n);
}

float ShareOfLargest(std::span<const float> logits, int32_t token) {
  const float largest = logits[static_cast<size_t>(token)];
  double sum = 0;
  for (const float x : logits) {
    if (x - largest > -20.0F) sum += static_cast<double>(std::exp(x - largest));
  }
  return static_cast<float>(1.0 / sum);
}

}  // namespace longspec
