// SPDX-License-Identifier: Apache-2.0
#include "decode/batch_trial.h"

#include <gtest/gtest.h>

namespace longspec {
namespace {

struct World {
  double plain_ms = 10, expected_ms = 8;  // expectations are wrong
  double guessed_ms = 12;
  double tokens_each = 1.5;  // of a round with guesses
};

// Time per token over that of plain rounds, of so many rounds of four sequences.
double Cost(BatchTrial& trial, const World& world, int rounds) {
  double ms = 0, tokens = 0;
  for (int i = 0; i < rounds; ++i) {
    const bool guesses = trial.MayGuess();
    const double took = guesses ? world.guessed_ms : world.plain_ms;
    const double each = guesses ? world.tokens_each : 1;
    // 1.5 tokens each are 6 of 4.
    trial.Observe(world.expected_ms, took, static_cast<int>(each * 4), 4);
    ms += took;
    tokens += each;
  }
  return ms / tokens / world.plain_ms;
}

TEST(BatchTrial, GuessesWhereTheyPay) {
  BatchTrial trial;
  EXPECT_LT(Cost(trial, {}, 500), 0.84);  // 0.8 without a plain round in twelve
}

TEST(BatchTrial, LosesNextToNothingWhereTheyDoNot) {
  for (const double guessed_ms : {15.1, 16.0, 30.0}) {
    BatchTrial trial;
    const double cost = Cost(trial, {.guessed_ms = guessed_ms}, 1000);
    EXPECT_LT(cost, 1.02) << guessed_ms;
  }
}

TEST(BatchTrial, TriesAgain) {
  BatchTrial trial;
  (void)Cost(trial, {.guessed_ms = 30}, 200);
  EXPECT_LT(Cost(trial, {}, 4000), 0.87);
}

TEST(BatchTrial, NothingMeasuredChangesNothing) {
  BatchTrial trial;
  trial.Observe(0, 1, 1, 1);
  trial.Observe(1, 0, 1, 1);
  trial.Observe(1, 1, 1, 0);
  EXPECT_FALSE(trial.MayGuess());  // the first is plain
}

}  // namespace
}  // namespace longspec
