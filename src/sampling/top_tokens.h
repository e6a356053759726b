// SPDX-License-Identifier: Apache-2.0
//
// A row of logits to its most probable tokens, for drafters. Exact, and without sorting the vocabulary. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace longspec {

struct TokenScore {
  int32_t token = 0;
  double log_prob = 0.0;  // at most 0
};

// The k most probable of n tokens under the softmax of `logits` (n), by descending probability, equal ones by
// ascending index; all n if k is larger. `tokens` (n, or empty: the identity) names them. Logits that are not
// all finite give no token. Thread-safe.
void TopTokens(const kernels::KernelTable& kernels, const float* logits, int n, int k,
               std::span<const int32_t> tokens, std::vector<TokenScore>& out);

}  // namespace longspec
