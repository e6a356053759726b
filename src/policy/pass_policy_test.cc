// SPDX-License-Identifier: Apache-2.0
//
// Sequences that share passes guess where that pays, on machines that are tables of costs.
#include "policy/pass_policy.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace longspec {
namespace {

const std::vector<PassPart> kParts(5);
std::span<const PassPart> Parts(size_t n) { return std::span(kParts).first(n); }

struct World {
  double plain_ms = 10, expected_ms = 8;  // expectations are wrong
  double guessed_ms = 12;
  double tokens_each = 1.5;  // of a round with guesses
};

// Time per token over that of plain rounds, of so many rounds of four sequences.
double Cost(BatchTrial& trial, const World& world, int rounds) {
  double ms = 0, tokens = 0;
  for (int i = 0; i < rounds; ++i) {
    const bool guesses = trial.MayGuess(true);
    const double took = guesses ? world.guessed_ms : world.plain_ms;
    const double each = guesses ? world.tokens_each : 1;
    // 1.5 tokens each are 6 of 4.
    trial.Observe(world.expected_ms, {.pass = Parts(4),
                                      .draft_ms = guesses ? 0.5 : 0,
                                      .round_ms = took,
                                      .tokens = static_cast<int>(each * 4),
                                      .nodes = guesses ? 16 : 0});
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

// Guesses that cost more than they brought for a while are used again when they have become worth it.
TEST(BatchTrial, TriesAgain) {
  BatchTrial trial;
  (void)Cost(trial, {.guessed_ms = 30}, 200);
  EXPECT_LT(Cost(trial, {}, 4000), 0.87);
}

TEST(BatchTrial, NothingMeasuredChangesNothing) {
  BatchTrial trial;
  trial.Observe(0, {.pass = Parts(1), .round_ms = 1, .tokens = 1});
  trial.Observe(1, {.pass = Parts(1), .round_ms = 0, .tokens = 1});
  trial.Observe(1, {.pass = {}, .round_ms = 1, .tokens = 1});
  EXPECT_FALSE(trial.MayGuess(true));  // the first is plain
}

// A chat that repeats nothing must not cost the copies that come after it their guesses.
TEST(BatchTrial, RoundsInWhichNothingWasGuessedAreNotHeldAgainstGuesses) {
  BatchTrial trial;
  for (int i = 0; i < 3000; ++i) {
    (void)trial.MayGuess(true);
    trial.Observe(8, {.pass = Parts(4), .draft_ms = 0.05, .round_ms = 10, .tokens = 4});
  }
  EXPECT_LT(Cost(trial, {}, 60), 0.86);
}

// Where a prompt is part of every round, none can be measured, and guesses are as good as elsewhere.
TEST(BatchTrial, BesidePromptsItGuessesAtOnce) {
  BatchTrial trial;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(trial.MayGuess(false)) << i;
    trial.Observe(0, {.pass = Parts(5), .round_ms = 50, .tokens = 6, .nodes = 16});
  }
  EXPECT_FALSE(trial.MayGuess(true));
}

}  // namespace
}  // namespace longspec
