// SPDX-License-Identifier: Apache-2.0
//
// What is known of how the target will choose before it has computed anything: its sampling options, so that
// a draft's probabilities can pass what the target's will pass, the grammar that its answer follows, and the
// dice, the random numbers of the positions ahead (base/dice.h). The target takes the token of the largest
// log p + g, and g is known for each token; a drafter that believes q draws its guesses towards the tokens
// that g favours (docs/decoding.md). Nothing here changes what is committed: a guess counts only if it equals
// the target's choice. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/constraint.h"
#include "sampling/sampler.h"

namespace longspec {

// A token that may come next.
struct Guess {
  int32_t token = 0;
  double chance = 0;  // of being the next token
};

// How far a drafter is to be believed beside the dice. With candidates' chances q, `rest` for all other
// tokens together and numbers g, the chance that the target takes candidate t is modelled as
//   w(t) / sum of all w,    w(t) = q(t)^belief * exp(dice * g(t)),    w(rest) = rest^belief * exp(other)
// which is exact, with belief = dice = 1/s, if log p is log q plus errors of the Gumbel distribution of scale
// s. The numbers are measured for each drafter (tests/recorded/).
struct DiceModel {
  double belief = 1;
  double dice = 0.5;
  double other = 0;
  double missing = 0;  // `rest` counts as this much at least: lists lack more than they say
};

// Of drafters that count text, fitted to ppm's chances over recorded answers.
inline constexpr DiceModel kDiceOfCounts = {.belief = 0.85, .dice = 0.5, .other = 0.7};
// Of draft models, fitted to those of the LongSpec draft that ships.
inline constexpr DiceModel kDiceOfModels = {.belief = 0.9, .dice = 0.55, .other = 1, .missing = 0.2};

class Foresight {
 public:
  Foresight() = default;  // nothing is known
  // `sampler` and `constraint` are borrowed. dice: false leaves the random numbers out of it. `constraint` is
  // what the answer may be, at its present end; null: any text.
  Foresight(const Sampler* sampler, bool dice, Constraint* constraint = nullptr)
      : sampler_(sampler), dice_(dice), constraint_(constraint) {}

  // Whether there are dice, and they may be used.
  bool has_dice() const { return dice_ && sampler_ != nullptr && !sampler_->is_greedy(); }

  // Who walks it ahead brings it back.
  Constraint* constraint() const { return constraint_; }

  // From a drafter's probabilities of the token after `history` to the chances of being chosen, likeliest
  // first (equal ones in the order given). `rest`: what is left to tokens that are not listed.

  // For lists that lack most tokens, and say nothing of how the target's distribution would be cut: biases
  // and penalties are applied as far as they can be, and what they exclude is dropped.
  void Refine(const DiceModel& model, const TokenHistory& history, double rest,
              std::vector<Guess>& guesses) const;

  // For the likeliest tokens of a distribution over the vocabulary, or most of it: temperature and filters
  // too. Filters drop what they would drop by a wide margin, since a draft's probabilities are not exact.
  void RefineDistribution(const DiceModel& model, const TokenHistory& history, double rest,
                          std::vector<Guess>& guesses) const;

 private:
  double Shift(const TokenHistory& history, std::vector<Guess>& guesses, double rest) const;
  void ThrowDice(const DiceModel& model, const TokenHistory& history, double rest,
                 std::vector<Guess>& guesses) const;

  const Sampler* sampler_ = nullptr;
  bool dice_ = false;
  Constraint* constraint_ = nullptr;
};

}  // namespace longspec
