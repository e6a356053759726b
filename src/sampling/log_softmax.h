// SPDX-License-Identifier: Apache-2.0
//
// The logarithms of the chances that a row of logits stands for, as answers report them. A pure function of
// the row, so it is the same with and without speculation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspec/generation.h"

namespace longspec {

class LogSoftmax {
 public:
  // `logits` (vocab), borrowed: at least one of them finite, none NaN or +infinity (sampling/logits_check.h).
  explicit LogSoftmax(std::span<const float> logits);

  float Of(int32_t token) const;
  // The n likeliest, or all if there are fewer; of equals the one with the smaller number first. Replaces
  // `out`.
  void Likeliest(int n, std::vector<TokenLogprob>& out) const;

 private:
  const std::span<const float> logits_;
  double log_sum_ = 0;
};

}  // namespace longspec
