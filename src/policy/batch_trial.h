// SPDX-License-Identifier: Apache-2.0
//
// Whether speculation pays where several sequences share a pass: measured speed has the last word. Now and
// then a round goes without guesses, which tells what plain rounds really take, as a factor on what was
// expected of them. If rounds with guesses wrote fewer tokens in their time than plain ones would have, there
// are none for a while, and ever longer. Not thread-safe.
#pragma once

namespace longspec {

class BatchTrial {
 public:
  // Before a round of several: whether anybody is asked for guesses. `only_decode`: no prompts are in it, so
  // that it can be measured.
  bool MayGuess(bool only_decode);

  // What a round was.
  struct Round {
    double plain_ms = 0;  // expected of the pass without guesses; 0: not known, for prompts were in it
    double round_ms = 0;  // what it took, drafting and choosing included
    double draft_ms = 0;
    int tokens = 0, nodes = 0, sequences = 0;  // written, verified, that decode
  };
  void Observe(const Round& round);

 private:
  static constexpr int kPlainEvery = 12;  // rounds
  static constexpr int kTrial = 6;        // rounds with guesses before they are judged
  static constexpr int kShortTrial = 2;   // where they are much slower
  static constexpr double kMuchSlower = 0.9;
  static constexpr int kMinPause = 32, kMaxPause = 1024;  // rounds
  static constexpr double kWorth = 1.02;                  // speed over that of plain rounds
  static constexpr double kRate = 0.15;                   // of running means
  static constexpr double kNoDrafting = 0.02;             // of a round: takes less where nothing was guessed

  bool guesses_ = true;  // in this round
  int rounds_ = 0, judged_ = 0;
  int pause_ = 0, next_pause_ = kMinPause;
  double factor_ = 0;  // what plain rounds take over what is expected; 0: not known
  double speed_ = 0;   // of rounds with guesses over plain ones
};

}  // namespace longspec
