// SPDX-License-Identifier: Apache-2.0
//
// When a language model that is one of several drafters runs what it has not read of its text. Nobody knows
// whether it will be asked, or for how long, and what it reads may cost more than a short answer's guesses
// can bring. So it reads when it was asked, piece by piece between rounds, in a small part of the time, that
// of the prompt included: an answer of any length loses no more than that part. Example: the last 64 tokens
// of a prompt take 12 ms; after a prompt that took 560 ms they are read 640 ms later.
#pragma once

#include <cstddef>

#include "base/clock.h"

namespace longspec {

class PromptAside {
 public:
  static constexpr size_t kPieceRows = 64;
  static constexpr size_t kRowsWithTree = 32;  // so few are run with the next tree
  static constexpr double kShare = 0.01;       // of the time

  // Time counts from here: another text begins.
  void Begin() {
    begun_ms_ = NowMs();
    spent_ms_ = 0;
    wanted_ = false;
  }
  // It was asked, and had not read enough to answer.
  void Want() { wanted_ = true; }
  // Whether a piece may be run now.
  bool MayRun() {
    if (begun_ms_ < 0) Begin();
    return wanted_ && kShare * (NowMs() - begun_ms_) >= spent_ms_ + last_ms_;
  }
  // What one took.
  void Ran(double ms) {
    wanted_ = false;
    spent_ms_ += ms;
    last_ms_ = ms;
  }

 private:
  static constexpr double kFirstMs = 10;  // believed of a piece before one was run

  bool wanted_ = false;
  double begun_ms_ = -1, spent_ms_ = 0, last_ms_ = kFirstMs;
};

}  // namespace longspec
