// SPDX-License-Identifier: Apache-2.0
//
// Rates, orders and positions of training as functions of step and seed.
#include "train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace longspec::train {
namespace {

// Behaviour 12: 0 at the beginning, the peak after warm-up, 0.0001 of it at the end.
TEST(LearningRate, WarmsUpAndFollowsACosine) {
  EXPECT_EQ(LearningRate(0, 100, 5e-4, 0.1), 0.0);
  EXPECT_DOUBLE_EQ(LearningRate(5, 100, 5e-4, 0.1), 2.5e-4);
  EXPECT_DOUBLE_EQ(LearningRate(9, 100, 5e-4, 0.1), 4.5e-4);
  EXPECT_NEAR(LearningRate(10, 100, 5e-4, 0.1), 5e-4, 5e-7);
  EXPECT_NEAR(LearningRate(54, 100, 5e-4, 0.1), 5e-4 * 0.50005, 1e-9);
  EXPECT_NEAR(LearningRate(99, 100, 5e-4, 0.1), 5e-8, 1e-12);
  for (int step = 11; step < 100; ++step) {
    EXPECT_LT(LearningRate(step, 100, 1.0, 0.1), LearningRate(step - 1, 100, 1.0, 0.1));
  }
}

TEST(LearningRate, TwoStepsOfWarmUpAtLeast) {
  EXPECT_EQ(LearningRate(0, 3, 1.0, 0.0), 0.0);
  EXPECT_EQ(LearningRate(1, 3, 1.0, 0.0), 0.5);
  EXPECT_NEAR(LearningRate(2, 3, 1.0, 0.0), 0.0001, 1e-12);
}

TEST(StableDecay, WarmsUpStaysAndDecays) {
  const StableDecay schedule = {.warmup = 10, .decay_share = 0.2};
  EXPECT_EQ(DecayBegin(100, schedule), 80);
  EXPECT_EQ(StableDecayRate(0, 100, 5e-4, schedule), 0.0);
  EXPECT_DOUBLE_EQ(StableDecayRate(5, 100, 5e-4, schedule), 2.5e-4);
  for (const int step : {10, 50, 79}) EXPECT_EQ(StableDecayRate(step, 100, 5e-4, schedule), 5e-4);
  EXPECT_DOUBLE_EQ(StableDecayRate(80, 100, 2.1, schedule), 2.0);
  EXPECT_DOUBLE_EQ(StableDecayRate(99, 100, 2.1, schedule), 0.1);
  // Until it decays, more steps change nothing.
  for (int step = 0; step < 80; ++step) {
    EXPECT_EQ(StableDecayRate(step, 100, 1.0, schedule), StableDecayRate(step, 200, 1.0, schedule));
  }
}

TEST(DrawSeed, IsAnotherForEachPassAndSeed) {
  std::set<uint64_t> seeds;
  for (int64_t pass = 0; pass < 500; ++pass) seeds.insert({DrawSeed(1, pass), DrawSeed(2, pass)});
  EXPECT_EQ(seeds.size(), 1000U);
}

// Behaviour 10, over many draws.
TEST(AnchorOffset, FollowsTheLaw) {
  for (const int64_t n_ctx : {8192, 16384, 40000}) {
    const int64_t reach = n_ctx, length = 1024;
    std::set<int> anchors;
    int64_t most = 0, least = reach;
    for (int64_t pass = 0; pass < 3000; ++pass) {
      const PositionDraw draw = DrawPositions(Positions::kAnchorOffset, 42, pass, length, n_ctx);
      anchors.insert(draw.anchors);
      most = std::max(most, draw.offset);
      least = std::min(least, draw.offset);
      for (int64_t i = 0; i < draw.anchors; ++i) EXPECT_EQ(PositionOf(draw, i), i);
      EXPECT_EQ(PositionOf(draw, draw.anchors), draw.offset + draw.anchors);
      EXPECT_EQ(PositionOf(draw, 500), draw.offset + 500);
      EXPECT_LE(PositionOf(draw, length - 1), reach - 1);
    }
    EXPECT_EQ(anchors, (std::set<int>{0, 1, 2, 3, 4}));
    EXPECT_GT(most, (reach - length) * 99 / 100);
    EXPECT_LT(least, (reach - length) / 100 + 1);
  }
}

TEST(AnchorOffset, LongSequencesAndSmallModelsKeepPlainPositions) {
  for (int64_t pass = 0; pass < 50; ++pass) {
    for (const Positions positions : {Positions::kAnchorOffset, Positions::kGaps}) {
      EXPECT_EQ(PositionOf(DrawPositions(positions, 1, pass, 1201, 40000), 1200), 1200);
      EXPECT_EQ(PositionOf(DrawPositions(positions, 1, pass, 1024, 1024), 1023), 1023);
    }
    EXPECT_FALSE(DrawPositions(Positions::kPlain, 1, pass, 1000, 40000).moves());
  }
  EXPECT_GT(DrawPositions(Positions::kAnchorOffset, 1, 0, 1200, 40000).offset, 0);
}

// One to four of them, anywhere behind the first token; the last token's position is spread evenly.
TEST(RandomGaps, MoveMiddleDistancesToo) {
  constexpr int64_t kTrainedTokens = 1024, kReach = 8192;
  std::map<size_t, int> n_gaps;
  int64_t n_middle = 0;
  double last = 0;
  for (int64_t pass = 0; pass < 3000; ++pass) {
    const PositionDraw draw = DrawPositions(Positions::kGaps, 42, pass, kTrainedTokens, kReach);
    EXPECT_EQ(PositionOf(draw, 0), 0);
    for (int64_t i = 1; i < kTrainedTokens; ++i) ASSERT_GT(PositionOf(draw, i), PositionOf(draw, i - 1));
    ++n_gaps[draw.gaps.size()];
    const int64_t end = PositionOf(draw, kTrainedTokens - 1);
    EXPECT_LT(end, kReach);
    last += static_cast<double>(end) / 3000;
    // An offset would leave the distance of these two as it is.
    n_middle += PositionOf(draw, 700) - PositionOf(draw, 300) > 400 ? 1 : 0;
  }
  ASSERT_EQ(n_gaps.size(), 4U);
  for (const auto& [n, count] : n_gaps) EXPECT_NEAR(count, 750, 100) << n;
  EXPECT_NEAR(last, (kTrainedTokens + kReach) / 2.0, 150);
  // One to four gaps, of which each is between them in 400 of 1023 places: 1 - mean of (623 / 1023)^n.
  EXPECT_NEAR(static_cast<double>(n_middle) / 3000, 0.66, 0.04);
}

// Behaviour 9.
TEST(FlashNoise, LagsAreOneToFour) {
  std::map<int, int> count;
  for (int64_t pass = 0; pass < 4000; ++pass) ++count[DrawLag(42, pass, 4)];
  EXPECT_EQ(count.size(), 4U);
  for (int lag = 1; lag <= 4; ++lag) EXPECT_NEAR(count[lag], 1000, 150) << lag;
  for (int64_t pass = 0; pass < 20; ++pass) EXPECT_EQ(DrawLag(42, pass, 1), 1);
}

TEST(SequenceOrder, IsAPermutationOfItsOwnForEachEpoch) {
  std::vector<int32_t> first = SequenceOrder(42, 0, 100), second = SequenceOrder(42, 1, 100);
  EXPECT_EQ(first, SequenceOrder(42, 0, 100));
  EXPECT_NE(first, second);
  EXPECT_NE(first, SequenceOrder(43, 0, 100));
  EXPECT_FALSE(std::ranges::is_sorted(first));
  std::ranges::sort(first);
  for (int32_t i = 0; i < 100; ++i) EXPECT_EQ(first[static_cast<size_t>(i)], i);
}

TEST(SortBatchesByLength, KeepsWhatAStepHas) {
  const std::vector<int64_t> lengths = {10, 500, 20, 500, 30, 40, 10};
  std::vector<int32_t> order = {0, 1, 2, 3, 6, 4, 5};
  SortBatchesByLength(3, lengths, &order);
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 0, 3, 4, 6, 5));  // equal ones in the order they had
}

}  // namespace
}  // namespace longspec::train
