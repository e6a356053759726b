// SPDX-License-Identifier: Apache-2.0
//
// Trees of tokens keep their invariants, whatever is added or taken away.
#include "tree/token_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/counter_rng.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;

// A new tree is a chain of one node without parent, children or tokens below it.
TEST(TokenTree, RootOnly) {
  const TokenTree tree(7);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.max_depth(), 0);
  EXPECT_TRUE(tree.is_chain());
  EXPECT_EQ(tree.node(0).token, 7);
  EXPECT_EQ(tree.node(0).parent, -1);
  EXPECT_EQ(tree.FindChild(0, 7), -1);
  EXPECT_THAT(tree.PathTo(0), ElementsAre(0));
  EXPECT_THAT(tree.TokensTo(0), ElementsAre());
}

TEST(TokenTree, ChainAndBranch) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 10, 0.5F, 3);
  const int b = tree.AddChild(a, 11);
  EXPECT_TRUE(tree.is_chain());
  const int c = tree.AddChild(0, 12);
  EXPECT_FALSE(tree.is_chain());
  const int d = tree.AddChild(b, 10);
  EXPECT_EQ(tree.max_depth(), 3);
  EXPECT_EQ(tree.node(a).source, 3);
  EXPECT_EQ(tree.node(d).depth, 3);
  EXPECT_EQ(tree.FindChild(0, 12), c);
  EXPECT_EQ(tree.FindChild(b, 10), d);
  EXPECT_EQ(tree.FindChild(c, 10), -1);
  EXPECT_THAT(tree.PathTo(d), ElementsAre(0, a, b, d));
  EXPECT_THAT(tree.PathTo(c), ElementsAre(0, c));
  EXPECT_THAT(tree.TokensTo(d), ElementsAre(10, 11, 10));
  EXPECT_THAT(tree.TokensTo(c), ElementsAre(12));
}

TEST(TokenTree, DuplicateSiblingsAreMergedAndKeepTheLargerScore) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 5, 0.25F, 1);
  EXPECT_EQ(tree.AddChild(0, 5, 0.75F, 2), a);
  EXPECT_EQ(tree.size(), 2);
  EXPECT_FLOAT_EQ(tree.node(a).score, 0.75F);
  EXPECT_EQ(tree.node(a).source, 1);
  EXPECT_EQ(tree.AddChild(0, 5, 0.1F), a);
  EXPECT_FLOAT_EQ(tree.node(a).score, 0.75F);
  // The same token elsewhere is another node.
  EXPECT_EQ(tree.AddChild(a, 5), 2);
}

TEST(TokenTree, SiblingsStayInOrderOfAddition) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 3);
  const int b = tree.AddChild(0, 1);
  const int c = tree.AddChild(0, 2);
  EXPECT_EQ(tree.node(0).first_child, a);
  EXPECT_EQ(tree.node(a).next_sibling, b);
  EXPECT_EQ(tree.node(b).next_sibling, c);
  EXPECT_EQ(tree.node(c).next_sibling, -1);
}

TEST(TokenTree, RandomTreesKeepTheirInvariants) {
  const RngStream rng{.seed = 1, .purpose = RngPurpose::kTest};
  for (uint64_t round = 0; round < 200; ++round) {
    TokenTree tree(0);
    const int wanted = 1 + static_cast<int>(rng.Uniform(round) * 40);
    for (uint32_t i = 0; i < static_cast<uint32_t>(wanted); ++i) {
      const int parent = static_cast<int>(rng.Uniform(round, 2 * i + 1) * tree.size());
      tree.AddChild(parent, static_cast<int32_t>(rng.Uniform(round, 2 * i + 2) * 4));
    }
    int deepest = 0, most_children = 0;
    std::set<std::pair<int32_t, int32_t>> seen;
    std::vector<int> children(static_cast<size_t>(tree.size()), 0);
    for (int i = 1; i < tree.size(); ++i) {
      const TreeNode& node = tree.node(i);
      ASSERT_LT(node.parent, i);
      ASSERT_EQ(node.depth, tree.node(node.parent).depth + 1);
      ASSERT_TRUE(seen.insert({node.parent, node.token}).second) << "equal siblings";
      ASSERT_EQ(tree.FindChild(node.parent, node.token), i);
      const std::vector<int32_t> path = tree.PathTo(i);
      ASSERT_EQ(path.front(), 0);
      ASSERT_EQ(path.back(), i);
      ASSERT_TRUE(std::is_sorted(path.begin(), path.end()));
      deepest = std::max(deepest, node.depth);
      most_children = std::max(most_children, ++children[static_cast<size_t>(node.parent)]);
    }
    ASSERT_EQ(tree.max_depth(), deepest);
    ASSERT_EQ(tree.is_chain(), most_children <= 1);
  }
}

TEST(Pruned, KeepsOrderScoresAndSources) {
  TokenTree tree(9);
  const int a = tree.AddChild(0, 1, 0.5F, 2);
  const int b = tree.AddChild(0, 2, 0.25F);
  const int c = tree.AddChild(a, 3, 0.4F, 1);
  const int d = tree.AddChild(b, 4, 0.2F);
  const TokenTree all = Pruned(tree, {true, true, true, true, true});
  EXPECT_EQ(all.size(), 5);
  EXPECT_EQ(all.node(d).parent, b);

  const TokenTree left = Pruned(tree, {false, true, false, true, true});  // d goes with its parent
  ASSERT_EQ(left.size(), 3);
  EXPECT_TRUE(left.is_chain());
  EXPECT_EQ(left.node(0).token, 9);
  EXPECT_EQ(left.node(1).token, 1);
  EXPECT_EQ(left.node(1).source, 2);
  EXPECT_EQ(left.node(2).token, tree.node(c).token);
  EXPECT_FLOAT_EQ(left.node(2).score, 0.4F);
  EXPECT_EQ(left.max_depth(), 2);

  const TokenTree right = Pruned(tree, {true, false, true, true, true});  // c goes with its parent
  ASSERT_EQ(right.size(), 3);
  EXPECT_EQ(right.node(2).token, 4);
  EXPECT_EQ(right.node(2).parent, 1);
  EXPECT_EQ(Pruned(tree, {true, false, false, true, true}).size(), 1);
}

TEST(Pruned, RandomTreesKeepPathsOfKeptNodes) {
  const RngStream rng{.seed = 4, .purpose = RngPurpose::kTest};
  for (uint64_t round = 0; round < 100; ++round) {
    TokenTree tree(0);
    for (uint32_t i = 0; i < 30; ++i) {
      tree.AddChild(static_cast<int>(rng.Uniform(round, 3 * i) * tree.size()),
                    static_cast<int32_t>(rng.Uniform(round, 3 * i + 1) * 5));
    }
    std::vector<bool> keep(static_cast<size_t>(tree.size()));
    for (uint32_t i = 0; i < keep.size(); ++i) keep[i] = rng.Uniform(round, 3 * i + 2) < 0.7;
    keep[0] = true;
    const TokenTree pruned = Pruned(tree, keep);
    int expected = 0;
    for (int i = 0; i < tree.size(); ++i) {
      const std::vector<int32_t> path = tree.PathTo(i);
      const bool kept = std::all_of(path.begin(), path.end(),
                                    [&](int32_t node) { return keep[static_cast<size_t>(node)]; });
      int at = 0;
      for (size_t k = 1; k < path.size() && at >= 0; ++k) at = pruned.FindChild(at, tree.node(path[k]).token);
      ASSERT_EQ(at >= 0, kept);
      expected += kept ? 1 : 0;
    }
    ASSERT_EQ(pruned.size(), expected);
  }
}

TEST(TokenTreeDeathTest, ParentMustExist) {
  TokenTree tree(0);
  EXPECT_DEATH(tree.AddChild(1, 0), "parent");
  EXPECT_DEATH(tree.FindChild(-1, 0), "parent");
  EXPECT_DEATH(static_cast<void>(tree.PathTo(4)), "node_index");
  EXPECT_DEATH(static_cast<void>(tree.TokensTo(4)), "node_index");
  EXPECT_DEATH(static_cast<void>(Pruned(tree, {})), "keep");
}

}  // namespace
}  // namespace longspec
