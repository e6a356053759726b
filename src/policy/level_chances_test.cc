// SPDX-License-Identifier: Apache-2.0
//
// What deeper levels of a tree promise follows from the levels above.
#include "policy/level_chances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace longspec {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

void LearnTree(LevelChances& chances, const TokenTree& tree, int levels) {
  std::vector<double> reach;
  for (const TreeNode& node : tree.nodes()) reach.push_back(node.score);
  std::vector<int> order(reach.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  std::ranges::stable_sort(order, std::greater(), [&](int i) { return reach[static_cast<size_t>(i)]; });
  chances.Learn(tree, order, reach, levels);
}

void LearnChain(LevelChances& chances, const std::vector<float>& scores, int levels) {
  TokenTree tree(0);
  for (const float score : scores) tree.AddChild(tree.size() - 1, 1, score);
  LearnTree(chances, tree, levels);
}

std::vector<double> Of(const LevelChances& chances, int levels) {
  std::vector<double> reach;
  double sum = 1;
  for (int level = 1; level <= levels; ++level) sum = chances.Append(level, sum, &reach);
  return reach;
}

auto Near(double value) { return DoubleNear(value, 1e-6); }

TEST(LevelChances, OfAChainGoOnLikeTheLastLevel) {
  LevelChances chances;
  EXPECT_EQ(chances.known(), 0);
  EXPECT_THAT(Of(chances, 2), IsEmpty());
  LearnChain(chances, {0.5F, 0.375F}, 2);
  EXPECT_EQ(chances.known(), 2);
  EXPECT_THAT(Of(chances, 4), ElementsAre(Near(0.5), Near(0.375), Near(0.28125), Near(0.2109375)));
}

TEST(LevelChances, OfATreeAreByLevelBestFirst) {
  LevelChances chances;
  TokenTree tree(0);
  const int weak = tree.AddChild(0, 1, 0.25F);
  const int good = tree.AddChild(0, 2, 0.5F);
  tree.AddChild(weak, 3, 0.125F);
  tree.AddChild(good, 3, 0.25F);
  tree.AddChild(good, 4, 0.125F);
  LearnTree(chances, tree, 2);
  EXPECT_THAT(Of(chances, 2), ElementsAre(Near(0.5), Near(0.25), Near(0.25), Near(0.125), Near(0.125)));
  EXPECT_EQ(Of(chances, 3).size(), 6U);  // a level that was never seen: that any is reached
  EXPECT_NEAR(Of(chances, 3).back(), 0.5 * 0.5 / 0.75, 1e-6);
}

// Levels that were asked for once hold at any chance of the levels above.
TEST(LevelChances, DeepLevelsGoWithThoseAboveThem) {
  LevelChances chances;
  LearnChain(chances, {0.8F, 0.4F, 0.4F}, 3);
  for (int i = 0; i < 100; ++i) LearnChain(chances, {0.2F}, 1);
  EXPECT_THAT(Of(chances, 3), ElementsAre(Near(0.2), Near(0.1), Near(0.1)));
}

TEST(LevelChances, WhatWasAskedForAndNotProposedPromisesNothing) {
  LevelChances chances;
  LearnChain(chances, {0.5F}, 4);
  EXPECT_EQ(chances.known(), 2);
  std::vector<double> reach;
  EXPECT_NEAR(chances.Append(1, 1, &reach), 0.5, 1e-6);
  EXPECT_EQ(chances.Append(2, 0.5, &reach), 0);
  LearnChain(chances, {}, 4);  // nothing came: that is a chance, too
  EXPECT_NEAR(chances.Append(1, 1, &reach), 0.4, 1e-6);
  // A second node that is proposed for the first time was none before.
  TokenTree tree(0);
  tree.AddChild(0, 1, 0.4F);
  tree.AddChild(0, 2, 0.3F);
  LearnTree(chances, tree, 1);
  EXPECT_THAT(Of(chances, 1), ElementsAre(Near(0.4), Near(0.06)));
}

}  // namespace
}  // namespace longspec
