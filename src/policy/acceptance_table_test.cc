// SPDX-License-Identifier: Apache-2.0
//
// How often guesses of a score are accepted is learned, forgotten and kept apart.
#include "policy/acceptance_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longspec {
namespace {

TEST(ContextBucket, DoublesFrom1K) {
  EXPECT_EQ(ContextBucket(0), 0);
  EXPECT_EQ(ContextBucket(1023), 0);
  EXPECT_EQ(ContextBucket(1024), 1);
  EXPECT_EQ(ContextBucket(2047), 1);
  EXPECT_EQ(ContextBucket(2048), 2);
  EXPECT_EQ(ContextBucket(131072), 8);
  for (int bucket = 0; bucket < 12; ++bucket) {
    EXPECT_EQ(ContextBucket(ContextBucketFrom(bucket)), bucket);
    EXPECT_EQ(ContextBucket(ContextBucketFrom(bucket + 1) - 1), bucket);
  }
}

TEST(AcceptanceTable, UntestedScoresAreTakenWithCaution) {
  const AcceptanceTable table;
  EXPECT_LT(table.Estimate({.score = 1.0}), 0.999);
  EXPECT_GT(table.Estimate({.score = 0.0}), 0.0);
  EXPECT_LT(table.Estimate({.score = 0.3}), table.Estimate({.score = 0.6}));
}

TEST(AcceptanceTable, ScoresThatAreNoChancesAreMet) {
  for (const float score : {std::nanf(""), INFINITY, -INFINITY, -1.0F, 7.0F}) {
    TokenTree tree(0);
    const int child = tree.AddChild(tree.AddChild(0, 1, score), 2, score);
    const double chance = KindOf(tree, child, 100).score;
    EXPECT_TRUE(chance >= 0.0 && chance <= 1.0) << score;
    const double estimate = AcceptanceTable().Estimate(KindOf(tree, child, 100));
    EXPECT_TRUE(estimate > 0.0 && estimate < 1.0) << score;
  }
}

TEST(AcceptanceTable, LearnsByScoreAndForgets) {
  AcceptanceTable table;
  for (int i = 0; i < 100; ++i) {
    table.Add({.score = 0.95}, true);
    table.Add({.score = 0.25}, false);
  }
  EXPECT_GT(table.Estimate({.score = 0.95}), 0.9);
  EXPECT_LT(table.Estimate({.score = 0.25}), 0.1);
  // Deeper nodes of the same score lean on it; other drafters do not.
  EXPECT_LT(table.Estimate({.depth = 4, .score = 0.25}), 0.15);
  EXPECT_GT(table.Estimate({.source = 1, .score = 0.25}), 0.2);
  for (int i = 0; i < 200; ++i) table.Add({.score = 0.95}, false);
  EXPECT_LT(table.Estimate({.score = 0.95}), 0.3);
}

// Trees that are worth their rows have many nodes that are seldom reached: one in twenty is not one in a
// hundred.
TEST(AcceptanceTable, TellsUnlikelyNodesApart) {
  AcceptanceTable table;
  for (int i = 0; i < 400; ++i) {
    table.Add({.score = 0.06}, i % 16 == 0);
    table.Add({.score = 0.01}, i % 100 == 0);
  }
  EXPECT_NEAR(table.Estimate({.score = 0.06}), 0.0625, 0.02);
  EXPECT_LT(table.Estimate({.score = 0.01}), 0.025);
  EXPECT_LT(AcceptanceTable().Estimate({.score = 0.001}), 0.01);
}

// How long a chain pays is decided by how seldom a sure guess is wrong.
TEST(AcceptanceTable, TellsSureNodesApart) {
  AcceptanceTable table;
  for (int i = 0; i < 400; ++i) {
    table.Add({.score = 0.93}, i % 10 != 0);
    table.Add({.score = 0.995}, true);
  }
  EXPECT_NEAR(table.Estimate({.score = 0.93}), 0.9, 0.02);
  EXPECT_GT(table.Estimate({.score = 0.995}), 0.99);
}

TEST(AcceptanceTable, LearnsWhatASourcesScoresAreWorth) {
  AcceptanceTable table;
  for (int i = 0; i < 100; ++i) {
    table.Add({.source = 1, .score = 0.55}, i % 5 == 0);
    table.Add({.source = 2, .score = 0.35}, i % 3 == 0);
  }
  // A score that was never tested is taken at what the source's others were worth.
  EXPECT_NEAR(table.Estimate({.source = 1, .score = 0.85}), 0.85 * 0.2 / 0.55, 0.12);
  EXPECT_NEAR(table.Estimate({.source = 2, .score = 0.85}), 0.85, 0.08);
  EXPECT_EQ(table.Estimate({.source = 3, .score = 0.85}), 0.85);
}

TEST(AcceptanceTable, AfterFadingAFewObservationsDecide) {
  AcceptanceTable table;
  for (int i = 0; i < 200; ++i) table.Add({.score = 0.55}, true);
  AcceptanceTable faded = table;
  faded.Fade();
  EXPECT_GT(faded.Estimate({.score = 0.55}), 0.75);
  for (int i = 0; i < 10; ++i) {
    table.Add({.score = 0.55}, false);
    faded.Add({.score = 0.55}, false);
  }
  EXPECT_LT(faded.Estimate({.score = 0.55}), table.Estimate({.score = 0.55}) - 0.1);
}

// What one short answer teaches is little, and stays; of a long one a part does.
TEST(AcceptanceTable, ManyShortTextsTeachAsMuchAsALongOne) {
  AcceptanceTable of_short, of_long;
  for (int text = 0; text < 40; ++text) {
    of_short.BeginText();
    for (int i = 0; i < 5; ++i) of_short.Add({.score = 0.55}, false);
  }
  EXPECT_LT(of_short.Estimate({.score = 0.55}), 0.2);
  for (int i = 0; i < 200; ++i) of_long.Add({.score = 0.55}, false);
  const double before = of_long.Estimate({.score = 0.55});
  of_long.BeginText();
  EXPECT_GT(of_long.Estimate({.score = 0.55}), before + 0.01);
  EXPECT_NEAR(of_long.Estimate({.score = 0.55}), of_short.Estimate({.score = 0.55}), 0.05);
}

TEST(AcceptanceTable, LearnsByDepthAndContext) {
  AcceptanceTable table;
  for (int i = 0; i < 200; ++i) {
    table.Add({.depth = 1, .score = 0.5, .context = 500}, true);
    table.Add({.depth = 9, .score = 0.5, .context = 500}, false);
    table.Add({.depth = 1, .score = 0.5, .context = 9000}, i % 2 == 0);
  }
  EXPECT_GT(table.Estimate({.depth = 1, .score = 0.5, .context = 500}), 0.85);
  EXPECT_LT(table.Estimate({.depth = 9, .score = 0.5, .context = 500}), 0.15);
  EXPECT_NEAR(table.Estimate({.depth = 1, .score = 0.5, .context = 9000}), 0.5, 0.15);
}

TEST(KindOf, ScoresAreRelativeToTheParent) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1, 0.5F, 1);
  const int b = tree.AddChild(a, 2, 0.25F, 2);
  const int c = tree.AddChild(b, 3, 0.75F);  // more likely than its parent: cannot be
  const int d = tree.AddChild(0, 4, 0.0F);
  const int e = tree.AddChild(d, 5, 0.5F);
  EXPECT_FLOAT_EQ(static_cast<float>(KindOf(tree, a, 7).score), 0.5F);
  EXPECT_EQ(KindOf(tree, a, 7).context, 7);
  EXPECT_EQ(KindOf(tree, b, 7).source, 2);
  EXPECT_EQ(KindOf(tree, b, 7).depth, 2);
  EXPECT_FLOAT_EQ(static_cast<float>(KindOf(tree, b, 7).score), 0.5F);
  EXPECT_EQ(KindOf(tree, c, 7).score, 1.0);
  EXPECT_EQ(KindOf(tree, e, 7).score, 0.0);
}

}  // namespace
}  // namespace longspec
