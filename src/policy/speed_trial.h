// SPDX-License-Identifier: Apache-2.0
//
// Whether speculation was faster than plain decoding lately, as measured, which has the last word. Not
// thread-safe.
#pragma once

#include <algorithm>

namespace longspec {

// Rounds that speculated are held against as many tokens decoded plainly. Where they were slower for a while
// there is a pause, then another trial, and longer pauses if that fails.
class SpeedTrial {
 public:
  // Another text begins, which may be better to guess: a long pause is cut short. What was measured counts
  // on, since answers of ten tokens are no trial each.
  void BeginText() { pause_ = std::min(pause_, kMinPause); }

  // Whether this round is to be plain, of a pause.
  bool Pauses() {
    if (pause_ == 0) return false;
    --pause_;
    return true;
  }

  // A round that speculated: what it took, and what its tokens would have taken plainly.
  void Add(double spent_ms, double plain_ms) {
    spent_ms_ = kKeep * spent_ms_ + spent_ms;
    plain_ms_ = kKeep * plain_ms_ + plain_ms;
    speed_ = plain_ms_ / spent_ms_;
    if (++n_rounds_ < kRounds) return;
    if (speed_ > kGood) next_pause_ = kMinPause;
    if (speed_ >= kTooSlow) return;
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kMaxPause);
    spent_ms_ = plain_ms_ = 0;
    n_rounds_ = 0;
  }

  double speed() const { return speed_; }  // of those rounds, over plain
  int pause() const { return pause_; }     // rounds of it that are left

 private:
  static constexpr double kKeep = 0.96;
  static constexpr int kRounds = 24;  // before they are judged
  static constexpr double kGood = 1.03, kTooSlow = 0.9;
  static constexpr int kMinPause = 16, kMaxPause = 256;  // rounds

  double spent_ms_ = 0, plain_ms_ = 0, speed_ = 1;
  int n_rounds_ = 0, pause_ = 0, next_pause_ = kMinPause;
};

// When a round goes plain only to be measured. What plain rounds take is what speculation is held against,
// and where every round speculates nothing tells: a table measured on a busy machine has rows cheap that are
// not. The first are early, and then they may take so much of the time, of all generations.
class PlainWatch {
 public:
  // Whether a round that promises `gain` times the speed of a plain one is to be plain. REQUIRES: gain > 1
  bool Due(double gain) const {
    const double share = (1 - 1 / gain) / kShare;
    return rounds_ >= std::min(static_cast<double>(wait_), std::max<double>(kMinWait, share));
  }
  // What a round was; `measured`: plain because it was due.
  void Count(bool plain, bool measured) {
    rounds_ = plain ? 0 : rounds_ + 1;
    if (measured) wait_ = std::min(2 * wait_, kMaxWait);
  }

 private:
  static constexpr int kMinWait = 8, kMaxWait = 256;  // rounds
  static constexpr double kShare = 0.005;             // of the time
  int rounds_ = 0, wait_ = kMinWait;
};

}  // namespace longspec
