// SPDX-License-Identifier: Apache-2.0
//
// When members that take time are asked and how deep, where what they add is known.
#include "policy/asking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "draft/pass_meeting.h"
#include "draft_model/registry.h"
#include "lab/testing/with_lab.h"

namespace longspec {
namespace {

constexpr double kTokenMs = 4;

// What a draft adds in truth: the tokens followed with 0, 1, ... levels, and the time of a level.
struct Truth {
  std::vector<int> followed;
  double level_ms = 1;
};

// Mean number of levels asked for.
double MeanLevels(AskingGain& gain, int rounds, double expected, const Truth& truth, size_t unread = 0) {
  double sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const int levels = gain.Levels(expected, kTokenMs, 8, unread);
    sum += levels;
    if (levels == 0) continue;
    gain.Answered();
    std::vector<int> followed = truth.followed;
    followed.resize(static_cast<size_t>(levels) + 1, truth.followed.back());
    gain.Learn(expected, followed, levels * truth.level_ms);
  }
  return sum / rounds;
}

TEST(AskingGain, AsksAsDeepAsIsWorthItsTime) {
  AskingGain gain;
  MeanLevels(gain, 300, 0.3, {{0, 1, 2, 2}});
  // Two levels of a token each, for 4 ms a token; and one more, which adds nothing, is tried now and then.
  EXPECT_NEAR(MeanLevels(gain, 1000, 0.3, {{0, 1, 2, 2}}), 2 + 1.0 / 8, 0.01);
  EXPECT_NEAR(gain.added(0.3, 1), 1, 0.05);
  EXPECT_NEAR(gain.added(0.3, 3), 0, 0.05);
  EXPECT_NEAR(gain.level_ms(), 1, 1e-6);
  EXPECT_EQ(gain.Levels(0.3, kTokenMs, 1), 1);
  EXPECT_EQ(gain.Levels(0.3, kTokenMs, 0), 0);
}

TEST(AskingGain, LeavesWhatAddsNothing) {
  AskingGain gain;
  MeanLevels(gain, 100, 0.3, {{0, 0}});
  const double levels = MeanLevels(gain, 3000, 0.3, {{0, 0}});
  EXPECT_LT(levels, 0.06);  // now and then, to see
  EXPECT_GT(levels, 0.001);
}

TEST(AskingGain, LooksAtRoundsApartByWhatTheOthersExpect) {
  AskingGain gain;
  double unsure = 0, sure = 0;
  for (int i = 0; i < 300; ++i) {
    unsure += MeanLevels(gain, 1, 0.1, {{0, 1, 1}});
    sure += MeanLevels(gain, 1, 6, {{4, 4}});
  }
  EXPECT_GT(unsure, 300);
  EXPECT_LT(sure, 60);
}

TEST(AskingGain, NoticesWhenTheTextChanges) {
  AskingGain gain;
  MeanLevels(gain, 300, 0.3, {{0, 0}});
  EXPECT_LT(MeanLevels(gain, 300, 0.3, {{0, 0}}), 0.1);
  MeanLevels(gain, 5000, 0.3, {{0, 1, 1}});
  EXPECT_GT(MeanLevels(gain, 300, 0.3, {{0, 1, 1}}), 1);
}

// Each trial in vain makes the next one wait twice as long, up to a limit; one that gains something, no
// longer.
TEST(AskingGain, TrialsInVainAreRarer) {
  AskingGain gain;
  MeanLevels(gain, 100, 0.3, {{0, 0}});
  const auto rounds_to_trial = [&](bool gains) {
    int rounds = 1;
    while (gain.Levels(0.3, kTokenMs, 8) == 0) ++rounds;
    gain.Answered();
    gain.Learn(0.3, std::vector<int>{0, gains ? 1 : 0}, 1);
    return rounds;
  };
  for (int i = 0; i < 5; ++i) rounds_to_trial(false);
  const int longest = rounds_to_trial(false);
  EXPECT_EQ(rounds_to_trial(true), longest);
  const int shortest = rounds_to_trial(false);
  EXPECT_NEAR(longest, 16 * shortest, 16);
  EXPECT_NEAR(rounds_to_trial(false), 2 * shortest, 2);
}

// A draft that has not read the text yet is asked again in the next round.
TEST(AskingGain, ATrialIsDueUntilItIsAnswered) {
  AskingGain gain;
  MeanLevels(gain, 100, 0.3, {{0, 0}});
  while (gain.Levels(0.3, kTokenMs, 8) == 0) {
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(gain.Levels(0.3, kTokenMs, 8), 1);
  gain.Answered();
  EXPECT_EQ(gain.Levels(0.3, kTokenMs, 8), 0);
}

// What has to be read before counts as a part of a trial, and of sixteen rounds where asking is worth it.
TEST(AskingGain, WhatIsReadBeforeCounts) {
  const auto rounds_to_trial = [](size_t unread) {
    AskingGain gain;
    gain.CaughtUp(10, 20);
    MeanLevels(gain, 9000, 0.3, {{0, 0}});
    while (gain.Levels(0.3, kTokenMs, 8, unread) == 0) {
    }
    gain.Answered();
    int rounds = 1;
    while (gain.Levels(0.3, kTokenMs, 8, unread) == 0) ++rounds;
    return rounds;
  };
  EXPECT_NEAR(rounds_to_trial(2), 5 * rounds_to_trial(0), 10);
  AskingGain gain;
  gain.CaughtUp(10, 20);
  MeanLevels(gain, 900, 0.3, {{0, 1, 1}});  // a level brings half of 4 ms for 1 ms
  EXPECT_EQ(gain.Levels(0.3, kTokenMs, 1, 7), 1);
  EXPECT_EQ(gain.Levels(0.3, kTokenMs, 1, 9), 0);
}

TEST(AskingGain, WhatIsDearerIsAskedMoreSeldomInVain) {
  AskingGain cheap, dear;
  MeanLevels(cheap, 9000, 0.3, {{0, 0}, 1});
  MeanLevels(dear, 9000, 0.3, {{0, 0}, 10});
  const double of_cheap = MeanLevels(cheap, 90'000, 0.3, {{0, 0}, 1}),
               of_dear = MeanLevels(dear, 90'000, 0.3, {{0, 0}, 10});
  EXPECT_NEAR(of_cheap / of_dear, 10, 2);
}

// A machine that stood still in the middle of it, and a tree that promises what is no number.
TEST(AskingGain, OneStallAndNonsenseAreForgotten) {
  AskingGain gain;
  MeanLevels(gain, 3000, 0.3, {{0, 0}, 1});
  gain.Learn(0.3, std::vector<int>{0, 0}, 3.6e6);
  EXPECT_LT(gain.level_ms(), 2);
  gain.CaughtUp(10, 20);
  gain.CaughtUp(10, 3.6e6);
  EXPECT_GT(MeanLevels(gain, 100'000, 0.3, {{0, 0}, 1}, 10), 0);
  (void)gain.Levels(std::nan(""), kTokenMs, 4);
  EXPECT_GT(MeanLevels(gain, 3000, 0.3, {{0, 0}, 1}), 0.001);
}

// A program goes on where the one before it was: what brought nothing is not tried at once.
TEST(AskingGain, BeliefsOutliveTheProgram) {
  AskingGain gain;
  EXPECT_TRUE(gain.Beliefs().empty());
  gain.Took(1, 3.5);
  gain.CaughtUp(10, 20);
  MeanLevels(gain, 300, 0.3, {{0, 1, 2, 2}});
  MeanLevels(gain, 300, 1.5, {{0, 0}, 2});
  const std::vector<double> beliefs = gain.Beliefs();
  AskingGain next;
  ASSERT_TRUE(next.Believe(beliefs));
  EXPECT_EQ(next.Beliefs(), beliefs);
  EXPECT_FALSE(next.IsDear(0, 0.5));
  EXPECT_TRUE(next.IsDear(1, 3));
  EXPECT_EQ(next.level_ms(), gain.level_ms());
  for (const double expected : {0.3, 1.5}) EXPECT_EQ(next.added(expected, 2), gain.added(expected, 2));
  const Truth useless = {{0, 0}, 2};
  EXPECT_NEAR(MeanLevels(next, 2000, 1.5, useless, 3), MeanLevels(gain, 2000, 1.5, useless, 3), 0.002);
}

TEST(AskingGain, WhatAreNoBeliefsChangesNothing) {
  AskingGain gain;
  gain.Took(0, 1);
  MeanLevels(gain, 300, 0.3, {{0, 1, 2, 2}});
  const std::vector<double> beliefs = gain.Beliefs();
  const size_t n = beliefs.size();
  for (size_t length = 0; length + 1 < n; ++length) {
    EXPECT_FALSE(gain.Believe(std::span(beliefs).first(length))) << length;
  }
  for (size_t i = 0; i < n; ++i) {
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300}) {
      std::vector<double> other = beliefs;
      other[i] = bad;
      if (i + 1 == n && bad == 1e300) continue;  // a very dear member
      EXPECT_FALSE(gain.Believe(other)) << i << ": " << bad;
    }
  }
  std::vector<double> many = beliefs;
  many.resize(n + 64, 1);
  EXPECT_FALSE(gain.Believe(many));
  EXPECT_EQ(gain.Beliefs(), beliefs);
}

// Where no speed was ever known it asks, unless something is to be read before; a text that begins is
// believed to be as fast as the last one.
TEST(AskingGain, TheSpeedOfTheLastTextIsBelieved) {
  AskingGain gain;
  EXPECT_EQ(gain.Levels(0.3, 0, 8), 1);
  EXPECT_EQ(gain.Levels(0.3, 0, 8, 60), 0);
  MeanLevels(gain, 200, 0.3, {{0, 0}, 100});
  EXPECT_EQ(gain.Levels(0.3, 0, 8), 0);
  AskingGain worth_it;
  MeanLevels(worth_it, 200, 0.3, {{0, 1, 1}, 1e-3});
  EXPECT_GE(worth_it.Levels(0.3, 0, 8), 1);
}

// A text that ngram cannot guess beside a played draft that takes time.
class DearMember : public ::testing::Test {
 protected:
  // The share of rounds in which the played draft was asked. Its guesses are verified, or all is left out.
  double AskedShare(float accept, float step_ms, double token_ms, AskingGain* gain, bool verified = true) {
    std::vector<int32_t> answer(400);
    const RngStream rng = {.seed = 5, .sequence = 0, .purpose = RngPurpose::kTest};
    for (size_t i = 0; i < answer.size(); ++i) answer[i] = static_cast<int32_t>(rng.Uniform(i) * 1000);
    auto drafter = MakeDrafter({.type = "ngram,replay",
                                .ngram = {.min = 3},
                                .added = Replay({.tokens = answer, .accept = accept, .step_ms = step_ms})});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    std::vector<int32_t> text = {3};
    EXPECT_TRUE((*drafter)->Follow(text).ok());
    Asking asking(gain);
    int n_asked = 0, n_rounds = 0;
    for (size_t i = 0; i + 4 < answer.size(); ++n_rounds) {
      TokenTree tree(text.back());
      PassMeeting meeting;
      asking.BeginRound();
      EXPECT_TRUE(RunNow(asking.Draft(*(*drafter)->portfolio(), {.max_nodes = 3, .max_depth = 3},
                                      {.dear_ms = 0.02, .token_ms = token_ms}, text, tree, meeting))
                      .ok());
      n_asked += tree.size() > 1 ? 1 : 0;
      if (!verified) tree = TokenTree(text.back());
      int n_new = 1;
      for (int at = tree.FindChild(0, answer[i]); at > 0;
           at = tree.FindChild(at, answer[i + static_cast<size_t>(n_new) - 1])) {
        ++n_new;
      }
      for (int k = 0; k < n_new; ++k) text.push_back(answer[i++]);
      EXPECT_TRUE((*drafter)->Read({.sequence = text, .n_new = n_new, .tree = &tree}).ok());
      asking.Learn(tree, std::span(text).last(static_cast<size_t>(n_new)));
    }
    return 1.0 * n_asked / n_rounds;
  }

 private:
  const SimulatedClock clock_;
};

TEST_F(DearMember, IsAskedWhereItPays) {
  AskingGain gain;
  EXPECT_EQ(AskedShare(0.9F, 0.05F, 20, &gain), 1);
  EXPECT_GT(gain.added(0, 1), 0.7);
  EXPECT_GT(gain.added(0, 2), 0.5);
  EXPECT_GE(gain.level_ms(), 0.05);
}

TEST_F(DearMember, IsLeftOutWhereItDoesNot) {
  AskingGain gain;
  EXPECT_LT(AskedShare(0.05F, 0.2F, 0.4, &gain), 0.2);
  EXPECT_LT(gain.added(0, 1), 0.2);
  // Its next sequence knows, from the first round on.
  EXPECT_TRUE(gain.IsDear(1, 0.02));
  EXPECT_FALSE(gain.IsDear(0, 0.02));
  EXPECT_LT(AskedShare(0.05F, 0.2F, 0.4, &gain), 0.06);
}

// In a batch whose rows are filled by others, say.
TEST_F(DearMember, IsLeftOutWhereNothingIsVerified) {
  AskingGain gain;
  EXPECT_LT(AskedShare(0.9F, 0.05F, 0.4, &gain, false), 0.2);
  for (int i = 0; i < 20; ++i) (void)AskedShare(0.9F, 0.05F, 0.4, &gain, false);
  EXPECT_LT(gain.added(0, 1), 0.05);
  // It is tried again, and asked where its guesses are verified: how soon depends on the machine.
  (void)AskedShare(0.9F, 0.05F, 0.4, &gain);
  EXPECT_GT(AskedShare(0.9F, 0.05F, 0.4, &gain), 0.6);
}

}  // namespace
}  // namespace longspec
