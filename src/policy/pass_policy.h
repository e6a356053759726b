// SPDX-License-Identifier: Apache-2.0
//
// What sequences that share a pass decide together: whether anybody guesses, for measured speed has the last
// word, and whose guesses are verified, for they compete for the same rows (policy/share_speculation.h). A
// sequence that is alone in its pass goes by its own policy. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "base/running_mean.h"
#include "policy/pass_cost.h"
#include "policy/policy.h"
#include "tree/token_tree.h"

namespace longspec {

// What a round did and took.
struct PassResult {
  std::span<const PassPart> pass;  // as it was run
  double target_ms = 0, draft_ms = 0;
  double round_ms = 0;        // drafting and choosing included
  int tokens = 0, nodes = 0;  // written, verified
};

// Whether speculation pays where several sequences share a pass. Now and then a round goes without guesses,
// which tells what plain rounds really take, as a factor on what was expected of them. If rounds with guesses
// wrote fewer tokens in their time than plain ones would have, there are none for a while, and ever longer.
class BatchTrial {
 public:
  // Before a round of several: whether anybody is asked for guesses. `only_decode`: no prompts are in it, so
  // that it can be measured.
  bool MayGuess(bool only_decode);

  // `plain_ms`: expected of the pass without guesses; 0: not known, for prompts were in it.
  void Observe(double plain_ms, const PassResult& round);

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

// A sequence's part of a pass, and what it proposes.
struct Proposal {
  PassPart rows;             // without guesses
  bool decodes = false;      // the last of them is the root of its tree
  Policy* policy = nullptr;  // of whom was asked for guesses; null: nobody was
  TokenTree* tree = nullptr;
  double draft_ms = 0;
};

class PassPolicy {
 public:
  // `costs` (borrowed) null: each policy decides as if its sequence were alone.
  explicit PassPolicy(CostModel* costs) : costs_(costs) {}

  // A round of so many sequences begins. `only_decode`: no rows of prompts are in it. Whether anybody is
  // asked for guesses.
  bool Begin(int n_sequences, bool only_decode);
  // What a token takes at the present speed, whoever gets it; 0: unknown.
  double token_ms() const { return token_ms_.value(); }

  // Leaves of each tree what is worth verifying.
  void Choose(std::span<Proposal> proposals);

  // What the pass is expected to take; 0 without costs.
  double PredictedMs(std::span<const PassPart> pass) const;

  void Observe(const PassResult& round);

 private:
  CostModel* const costs_;
  BatchTrial trial_;
  RunningMean token_ms_;
  bool warm_ = false;  // there was a round that only decodes

  // This round.
  bool several_ = false, only_decodes_ = false;
  double plain_ms_ = 0;  // expected without guesses; 0: prompts are in it
};

}  // namespace longspec
