// SPDX-License-Identifier: Apache-2.0
//
// When a language model that is one of several drafters runs what it has not read of its text. Nobody knows
// whether it will be asked, or for how long, and a prompt costs it more than a short answer's guesses can
// bring. So it reads piece by piece between rounds, in a small part of the time: an answer of any length
// loses no more than that part, and a long one has the draft in the end. Example: 1,024 tokens that take 430
// ms are read after 22 s.
#pragma once

#include <cstddef>

#include "base/clock.h"

namespace longspec {

class PromptAside {
 public:
  static constexpr size_t kPieceRows = 64;
  static constexpr double kShare = 0.02;  // of the time

  // Whether a piece may be run now. Time counts from the first call.
  bool MayRun() {
    if (begun_ms_ < 0) begun_ms_ = NowMs();
    return kShare * (NowMs() - begun_ms_) >= spent_ms_ + last_ms_;
  }
  // What one took.
  void Ran(double ms) {
    spent_ms_ += ms;
    last_ms_ = ms;
  }

 private:
  double begun_ms_ = -1, spent_ms_ = 0, last_ms_ = 0;
};

}  // namespace longspec
