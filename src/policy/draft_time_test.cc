// SPDX-License-Identifier: Apache-2.0
//
// What asking a drafter takes is found as a line over levels, in noise.
#include "policy/draft_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace longspec {
namespace {

TEST(DraftTime, OfOneNumberOfLevelsIsNearlyInProportion) {
  DraftTime time;
  EXPECT_FALSE(time.known());
  EXPECT_EQ(time.Ms(5), 0);
  for (int i = 0; i < 50; ++i) {
    time.Add(4, 8.0);
    EXPECT_TRUE(time.known());
    EXPECT_DOUBLE_EQ(time.Ms(4), 8.0);
    EXPECT_DOUBLE_EQ(time.level_ms(), 1.8);
    EXPECT_DOUBLE_EQ(time.Ms(8), 15.2);
  }
}

// As the policy asks: mostly for as many, for two more now and then.
TEST(DraftTime, FindsTheLine) {
  for (const double fixed_ms : {0.0, 0.5, 4.0}) {
    for (const double level_ms : {0.0, 0.3, 2.0}) {
      DraftTime time;
      for (int i = 1; i <= 80; ++i) {
        const int levels = i % 8 == 0 ? 8 : 6;
        time.Add(levels, fixed_ms + level_ms * levels);
      }
      const double doubt = 0.05 * (fixed_ms + level_ms);
      EXPECT_NEAR(time.level_ms(), level_ms, doubt) << fixed_ms;
      EXPECT_NEAR(time.Ms(6), fixed_ms + 6 * level_ms, doubt) << fixed_ms;
      EXPECT_NEAR(time.Ms(1), fixed_ms + level_ms, 5 * doubt) << fixed_ms;
    }
  }
}

TEST(DraftTime, FindsItInNoise) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.1);
  DraftTime time;
  double levels_off = 0, ms_off = 0;
  constexpr int kRounds = 2000;
  for (int i = 1; i <= kRounds; ++i) {
    const int levels = i % 8 == 0 ? 8 : 6;
    time.Add(levels, (1.0 + 0.5 * levels) * (1 + noise(random)));
    levels_off += std::abs(time.level_ms() - 0.5) / kRounds;
    ms_off += std::abs(time.Ms(6) - 4.0) / kRounds;
  }
  EXPECT_LT(levels_off, 0.12);
  EXPECT_LT(ms_off, 0.15);
}

TEST(DraftTime, NeitherPartIsNegative) {
  DraftTime falls, rises;
  for (int i = 0; i < 60; ++i) {
    const int levels = 1 + i % 4;
    falls.Add(levels, 10.0 - levels);
    rises.Add(levels, 1.0 * levels * levels);
    EXPECT_GE(rises.fixed_ms(), 0);
  }
  EXPECT_EQ(falls.level_ms(), 0);
  EXPECT_NEAR(falls.Ms(1), 7.5, 1);
  EXPECT_NEAR(rises.fixed_ms(), 0, 1e-9);
  EXPECT_GT(rises.level_ms(), 1);
}

// How many are asked for follows a few proposals later.
TEST(DraftTime, FollowsWhatChanges) {
  DraftTime time;
  int i = 0, settled = 9;
  for (const double level_ms : {1.0, 4.0, 0.5}) {
    for (int n = 0; n < 60; ++n) {
      if (n == 5) settled = level_ms > 1 ? 3 : 9;
      const int levels = ++i % 8 == 0 ? settled + 2 : settled;
      time.Add(levels, 0.2 + level_ms * levels);
      if (n >= 20) {
        EXPECT_NEAR(time.Ms(settled) / (0.2 + level_ms * settled), 1, 0.1) << level_ms << " " << n;
      }
    }
    EXPECT_NEAR(time.level_ms() / level_ms, 1, 0.2);
  }
}

TEST(DraftTime, AFirstTimeMayTakeLonger) {
  DraftTime time;
  time.Add(8, 100.0);
  EXPECT_FALSE(time.sure());
  time.Add(2, 1.0);
  EXPECT_TRUE(time.sure());
  EXPECT_DOUBLE_EQ(time.Ms(2), 1.0);
  time.Add(2, 0.1);  // later ones are not forgotten
  EXPECT_NEAR(time.Ms(2), 0.82, 1e-9);
}

// The slope stays what it was while all proposals get slower alike.
TEST(DraftTime, AShiftMovesTheLineAlone) {
  DraftTime time;
  for (int i = 0; i < 60; ++i) time.Add(2 + i % 3, 1.0 + 0.5 * (2 + i % 3));
  for (int i = 0; i < 20; ++i) time.Add(2 + i % 3, 3.0 + 0.5 * (2 + i % 3));
  EXPECT_NEAR(time.level_ms(), 0.5, 0.15);
  EXPECT_NEAR(time.Ms(3), 4.5, 0.1);
}

TEST(DraftTime, SlowProposalsCountLittleUnlessAllAre) {
  DraftTime time;
  for (int i = 0; i < 40; ++i) time.Add(2 + i % 3, 0.5 * (2 + i % 3));
  const double before = time.Ms(3);
  time.Add(4, 300.0);
  EXPECT_LT(time.Ms(3), 1.4 * before);
  EXPECT_GT(time.mean_ms(), 60);  // of all as they are
  time.Add(2, 1.0);
  time.Add(2, 300.0);
  time.Add(3, 300.0);
  EXPECT_LT(time.Ms(3), 2 * before);
  time.Add(2, 300.0);  // the third in a row is no exception
  EXPECT_GT(time.Ms(3), 50);
  DraftTime none;  // what took no time may take some
  none.Add(3, 0.0);
  for (int i = 0; i < 3; ++i) none.Add(3, 1.0);
  EXPECT_GT(none.Ms(3), 0.1);
}

}  // namespace
}  // namespace longspec
