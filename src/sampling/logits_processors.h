// SPDX-License-Identifier: Apache-2.0
//
// What changes logits before candidates are chosen: bias, then penalties, with llama.cpp's semantics. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspec/options.h"
#include "sampling/sampler.h"

namespace longspec {

// True if ApplyBiasAndPenalties would change anything.
bool ChangesLogits(const SamplingOptions& options);

// Adds the biases; then, once per distinct token of the last repeat_last_n tokens of `history`: divides a
// positive logit by repeat_penalty (multiplies one that is not), subtracts frequency_penalty times its count
// there and presence_penalty once. `counts` is scratch: all zero before and after, grown to the vocabulary
// when needed.
void ApplyBiasAndPenalties(const SamplingOptions& options, const TokenHistory& history,
                           std::span<float> logits, std::vector<int32_t>& counts);

// The few logits of a row that ApplyBiasAndPenalties may change after a history, and what it makes of them:
// for a row that is not at hand.
class LogitChanges {
 public:
  LogitChanges(const SamplingOptions& options, const TokenHistory& history, int vocab_size);

  std::span<const int32_t> tokens() const { return tokens_; }  // whose they are, ascending
  // logits: those of tokens(), in their order.
  void Apply(std::span<float> logits) const;

 private:
  std::vector<int32_t> tokens_;
  SamplingOptions options_;       // their biases and penalties, by places in tokens_
  std::vector<int32_t> history_;  // the same of what penalties see
};

// What bias, frequency_penalty and presence_penalty add to the logits of these tokens (distinct); the part of
// ApplyBiasAndPenalties that does not depend on the logit. repeat_penalty is left out.
std::vector<double> LogitShifts(const SamplingOptions& options, const TokenHistory& history,
                                std::span<const int32_t> tokens);

}  // namespace longspec
