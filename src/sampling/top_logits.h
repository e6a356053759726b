// SPDX-License-Identifier: Apache-2.0
//
// The few tokens of a row that can be chosen and are likeliest. Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace longspec {

inline constexpr int kMaxTopLogits = 64;

// Writes the tokens of the largest logits, largest first, equal ones in order of token; returns how many:
// tokens.size(), or fewer if the others are -inf or not numbers. REQUIRES: tokens.size() <= kMaxTopLogits
int TopLogits(std::span<const float> logits, std::span<int32_t> tokens);

// The softmax share of one token. REQUIRES: it is the token of the largest logit.
float ShareOfLargest(std::span<const float> logits, int32_t token);

}  // namespace longspec
