// SPDX-License-Identifier: Apache-2.0
#include "policy/batch_trial.h"

#include <algorithm>

namespace longspec {

bool BatchTrial::MayGuess(bool only_decode) {
  if (pause_ > 0) {
    --pause_;
    return guesses_ = false;
  }
  if (!only_decode) return guesses_ = true;
  ++rounds_;
  // The first round is plain: without it there is nothing to compare with.
  return guesses_ = factor_ > 0 && rounds_ % kPlainEvery != 0;
}

void BatchTrial::Observe(const Round& round) {
  if (round.plain_ms <= 0 || round.round_ms <= 0 || round.sequences <= 0) return;
  // Where nothing was guessed, and no time was lost in finding that out, a round was as good as plain.
  if (!guesses_ || (round.nodes == 0 && round.draft_ms < kNoDrafting * round.round_ms)) {
    const double factor = (round.round_ms - round.draft_ms) / round.plain_ms;
    factor_ = factor_ == 0 ? factor : factor_ + kRate * (factor - factor_);
    return;
  }
  if (factor_ == 0) return;
  const double speed =
      static_cast<double>(round.tokens) / round.sequences * round.plain_ms * factor_ / round.round_ms;
  speed_ = judged_ == 0 ? speed : speed_ + kRate * (speed - speed_);
  ++judged_;
  if (judged_ < (speed_ < kMuchSlower ? kShortTrial : kTrial)) return;
  if (speed_ >= kWorth) {
    next_pause_ = kMinPause;
    return;
  }
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kMaxPause);
  judged_ = 0;
}

}  // namespace longspec
