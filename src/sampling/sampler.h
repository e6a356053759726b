// SPDX-License-Identifier: Apache-2.0
//
// From a row of logits to a token, in llama.cpp's default order: logit bias, penalties, top-k, top-p, min-p,
// infill (sampling/infill_filter.h), temperature, then the choice by Gumbel-max: the token of the largest log
// p + g, where the numbers g are those of that absolute position (base/dice.h). Top-p and min-p therefore
// look at probabilities at temperature 1, top-p at those among the top-k. A pure function of (logits,
// history, seed, sequence, position), so the token at a position is the same however many rows were computed
// beside it. A NaN logit counts as minus infinity, which is a token that cannot occur; who must not choose
// from a row with NaN asks CheckLogits first (logits_check.h). A Sampler is immutable; scratch space is the
// caller's, one per thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/counter_rng.h"
#include "base/dice.h"
#include "kernels/ops.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "sampling/infill_filter.h"

namespace longspec {

// What precedes the token being chosen: committed tokens, then the drafted path down to the node. Penalties
// see both, so p at a drafted node is the p plain decoding would have there.
struct TokenHistory {
  std::span<const int32_t> committed;
  std::span<const int32_t> drafted;

  size_t size() const { return committed.size() + drafted.size(); }
  int32_t operator[](size_t i) const {
    return i < committed.size() ? committed[i] : drafted[i - committed.size()];
  }
};

inline constexpr int32_t kNoToken = -1;  // what is chosen where none can occur

struct TokenProbability {
  int32_t token;
  double probability;
};

class Sampler {
 public:
  struct Scratch {
    std::vector<float> logits;
    std::vector<float> read;     // a row that lies elsewhere
    std::vector<float> allowed;  // a row without the tokens that a grammar forbids
    std::vector<int32_t> counts;
    std::vector<std::pair<float, int32_t>> candidates;
    std::vector<TokenProbability> distribution;
  };

  // Checks ranges; the message names the option. `options.seed` must already be a number. `kernels`: null is
  // the best this CPU has; the choice is the same with all of them. `tokenizer` (borrowed) is needed for
  // options.infill alone.
  static Result<Sampler> Create(const SamplingOptions& options, int vocab_size, uint64_t sequence = 0,
                                const kernels::KernelTable* kernels = nullptr,
                                const Tokenizer* tokenizer = nullptr);

  // The token for absolute position `position`. logits: (vocab_size) f32. Temperature <= 0: the largest logit
  // after penalties and bias, the lowest token id on ties. kNoToken if bias and penalties leave none that can
  // occur.
  int32_t Sample(std::span<const float> logits, const TokenHistory& history, uint64_t position,
                 Scratch& scratch) const;

  // The same of a row that is not at hand, whose top_k first candidates (candidates.h), after bias and
  // penalties, are scratch.candidates; those at minus infinity may be missing. REQUIRES: a top_k that leaves
  // some out, no infill, not is_greedy().
  int32_t SampleAmong(uint64_t position, Scratch& scratch) const;

  // The processed distribution Sample draws from: descending probability, ties by ascending token id, sums to
  // 1; tokens that cannot occur are left out, so it may be empty. Valid until scratch is used again.
  std::span<const TokenProbability> Distribution(std::span<const float> logits, const TokenHistory& history,
                                                 Scratch& scratch) const;

  // The numbers that decide the choice at a position, whatever the logits will be. They decide nothing if
  // is_greedy().
  Dice DiceAt(uint64_t position) const { return {stream_, position}; }

  const SamplingOptions& options() const { return options_; }
  bool is_greedy() const { return options_.temperature <= 0.0F; }
  // Not all that can occur is drawn from.
  bool has_filters() const {
    return options_.top_k > 0 || options_.top_p < 1.0F || options_.min_p > 0.0F || options_.infill;
  }

 private:
  Sampler(SamplingOptions options, int vocab_size, RngStream stream, const kernels::KernelTable& kernels,
          std::optional<InfillFilter> infill);

  SamplingOptions options_;
  int vocab_size_;
  RngStream stream_;
  const kernels::KernelTable* kernels_;
  std::optional<InfillFilter> infill_;
};

}  // namespace longspec
