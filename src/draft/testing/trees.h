// SPDX-License-Identifier: Apache-2.0
//
// For tests: what every drafted tree must be, and whether it was drafted with dice.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "draft/drafter.h"
#include "sampling/sampler.h"

namespace longspec::testing {

// Within the budget; parents before children, which are no likelier; siblings distinct, the likeliest first.
inline void ExpectWellFormed(const TokenTree& tree, const DraftBudget& budget) {
  ASSERT_LE(tree.size() - 1, budget.max_nodes);
  ASSERT_LE(tree.max_depth(), budget.max_depth);
  for (int i = 1; i < tree.size(); ++i) {
    const TreeNode& node = tree.node(i);
    ASSERT_TRUE(node.parent >= 0 && node.parent < i);
    const TreeNode& parent = tree.node(node.parent);
    ASSERT_EQ(node.depth, parent.depth + 1);
    ASSERT_GT(node.score, 0.0F);
    ASSERT_LE(node.score, parent.score);
  }
  for (int i = 0; i < tree.size(); ++i) {
    std::set<int32_t> tokens;
    float last = tree.node(i).score;
    for (int child = tree.node(i).first_child; child >= 0; child = tree.node(child).next_sibling) {
      ASSERT_TRUE(tokens.insert(tree.node(child).token).second) << tree.node(child).token;
      ASSERT_LE(tree.node(child).score, last);
      last = tree.node(child).score;
    }
  }
}

// Pairs of siblings of which the later one is as likely by itself, which chance_of(node) says, and has the
// larger number: none, whatever the drafter's DiceModel, if its order follows the numbers.
template <typename ChanceOf>
int DiceInversions(const TokenTree& tree, size_t n_committed, const Sampler& sampler, ChanceOf chance_of) {
  int n = 0;
  for (int a = 1; a < tree.size(); ++a) {
    const Dice dice = sampler.DiceAt(n_committed + static_cast<size_t>(tree.node(a).depth) - 1);
    for (int b = tree.node(a).next_sibling; b >= 0; b = tree.node(b).next_sibling) {
      const bool luckier = dice.Gumbel(tree.node(b).token) > dice.Gumbel(tree.node(a).token);
      n += luckier && chance_of(b) >= chance_of(a) ? 1 : 0;
    }
  }
  return n;
}

inline Sampler UnfilteredSampler(int vocab_size, uint64_t seed = 3) {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  options.seed = seed;
  auto sampler = Sampler::Create(options, vocab_size);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return *sampler;
}

}  // namespace longspec::testing
