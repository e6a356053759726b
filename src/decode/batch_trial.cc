// SPDX-License-Identifier: Apache-2.0
#include "decode/batch_trial.h"

#include <algorithm>

namespace longspec {

bool BatchTrial::MayGuess() {
  ++rounds_;
  if (pause_ > 0) {
    --pause_;
    return guesses_ = false;
  }
  // The first round is plain: without it there is nothing to compare with.
  return guesses_ = factor_ > 0 && rounds_ % kPlainEvery != 0;
}

void BatchTrial::Observe(double plain_ms, double round_ms, int tokens, int sequences) {
  if (plain_ms <= 0 || round_ms <= 0 || sequences <= 0) return;
  if (!guesses_) {
    const double factor = round_ms / plain_ms;
    factor_ = factor_ == 0 ? factor : factor_ + kRate * (factor - factor_);
    return;
  }
  const double speed = static_cast<double>(tokens) / sequences * plain_ms * factor_ / round_ms;
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
