// SPDX-License-Identifier: Apache-2.0
//
// The walk through a tree commits what plain decoding would have chosen, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "grammar/testing/toy_constraint.h"
#include "verify/testing/chi_square.h"
#include "verify/testing/node_rules.h"
#include "verify/verify.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Sampler Make(SamplingOptions options, int vocab) {
  options.seed = options.seed.value_or(5);
  auto sampler = Sampler::Create(options, vocab);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return *sampler;
}

SamplingOptions Greedy() {
  SamplingOptions options;
  options.temperature = 0.0F;
  return options;
}

// One row per node; each row's largest logit is at the given token.
std::vector<float> RowsFor(const std::vector<int32_t>& best, int vocab) {
  std::vector<float> rows(best.size() * static_cast<size_t>(vocab), 0.0F);
  for (size_t i = 0; i < best.size(); ++i)
    rows[i * static_cast<size_t>(vocab) + static_cast<size_t>(best[i])] = 1;
  return rows;
}

Accepted Verify(const TokenTree& tree, const std::vector<float>& rows, const Sampler& sampler, int vocab,
                std::vector<int32_t> committed) {
  Sampler::Scratch scratch;
  return *SampleAndMatch(tree, {rows.data(), tree.size(), vocab}, sampler, committed, scratch);
}

TEST(SampleAndMatch, RootAloneIsPlainDecoding) {
  const Accepted accepted = Verify(TokenTree(2), RowsFor({3}, 5), Make(Greedy(), 5), 5, {1, 2});
  EXPECT_THAT(accepted.nodes, ElementsAre(0));
  EXPECT_THAT(accepted.tokens, ElementsAre(3));
}

TEST(SampleAndMatch, FollowsMatchesAndEndsWithTheCorrection) {
  TokenTree tree(0);
  const int decoy = tree.AddChild(0, 4);
  const int a = tree.AddChild(0, 1);
  const int b = tree.AddChild(a, 2);
  tree.AddChild(decoy, 1);
  tree.AddChild(b, 4);
  // Root wants 1, a wants 2, b wants 3: the child 4 of b is wrong.
  const Accepted accepted = Verify(tree, RowsFor({1, 0, 2, 3, 0, 0}, 5), Make(Greedy(), 5), 5, {0});
  EXPECT_THAT(accepted.nodes, ElementsAre(0, a, b));
  EXPECT_THAT(accepted.tokens, ElementsAre(1, 2, 3));
}

TEST(SampleAndMatch, ALeafGivesTheBonusToken) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1);
  const Accepted accepted = Verify(tree, RowsFor({1, 4}, 5), Make(Greedy(), 5), 5, {0});
  EXPECT_THAT(accepted.nodes, ElementsAre(0, a));
  EXPECT_THAT(accepted.tokens, ElementsAre(1, 4));
}

TEST(SampleAndMatch, PenaltiesSeeTheDraftedPrefix) {
  SamplingOptions options = Greedy();
  options.presence_penalty = 10.0F;
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1);
  tree.AddChild(a, 1);
  // Every row prefers 1, then 2, then 3. After 1 was taken, 2 follows: the penalty is not frozen for the
  // tree.
  std::vector<float> rows;
  for (int i = 0; i < 3; ++i) rows.insert(rows.end(), {0, 3, 2, 1});
  const Accepted accepted = Verify(tree, rows, Make(options, 4), 4, {0});
  EXPECT_THAT(accepted.nodes, ElementsAre(0, a));
  EXPECT_THAT(accepted.tokens, ElementsAre(1, 2));
}

TEST(SampleAndMatch, EachDepthUsesTheNumberOfItsPosition) {
  SamplingOptions options;
  options.temperature = 1.0F;
  const int vocab = 50;
  const std::vector<float> row(vocab, 0.0F);
  const Sampler sampler = Make(options, vocab);
  Sampler::Scratch scratch;
  const std::vector<int32_t> committed = {9, 8, 7};
  const int32_t first = sampler.Sample(row, {committed, {}}, 3, scratch);
  TokenTree tree(7);
  tree.AddChild(0, first);
  std::vector<float> rows(2 * vocab, 0.0F);
  const Accepted accepted = Verify(tree, rows, sampler, vocab, committed);
  EXPECT_THAT(accepted.tokens, ElementsAre(first, sampler.Sample(row, {committed, {&first, 1}}, 4, scratch)));
}

// The law and the acceptance of research 8.7 for deterministic children, with the sampler's own numbers.
TEST(SampleAndMatch, LawAndAcceptanceOnTheFixture) {
  SamplingOptions options;
  options.temperature = 1.0F;
  options.top_k = 0;
  options.top_p = 1.0F;
  options.min_p = 0.0F;
  std::vector<float> rows;
  for (int node = 0; node < 4; ++node) {
    for (const double p : kP) rows.push_back(static_cast<float>(std::log(p)));
  }
  const double acceptance[] = {0.0, .28, .64, .74};
  for (size_t k = 0; k <= 3; ++k) {
    TokenTree tree(0);
    for (const int32_t token : TopOfQ(static_cast<int>(k))) tree.AddChild(0, token);
    std::vector<int64_t> counts(kP.size(), 0);
    double accepted = 0;
    constexpr int kSamples = 10000;
    Sampler::Scratch scratch;
    for (uint64_t seed = 0; seed < kSamples; ++seed) {
      options.seed = seed;
      const Accepted verdict = *SampleAndMatch(tree, {rows.data(), tree.size(), 6}, Make(options, 6),
                                               std::vector<int32_t>{0}, scratch);
      ++counts[static_cast<size_t>(verdict.tokens[0])];
      accepted += verdict.nodes.size() > 1 ? 1 : 0;
    }
    EXPECT_GT(ChiSquarePValue(counts, kP), 1e-6);
    EXPECT_NEAR(accepted, kSamples * acceptance[k],
                5 * std::sqrt(kSamples * acceptance[k] * (1 - acceptance[k])));
  }
}

TEST(SampleAndMatch, LogitsThatAreNoNumbersEndTheWalkWhereTheyAreLookedAt) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1);
  const int b = tree.AddChild(a, 2);
  const int decoy = tree.AddChild(0, 3);
  for (const float wrong : {std::nanf(""), INFINITY}) {
    for (SamplingOptions options : {Greedy(), SamplingOptions{.temperature = 0.5F}}) {
      const Sampler sampler = Make(options, 5);
      Sampler::Scratch scratch;
      const std::vector<int32_t> committed = {7, 8, 0};
      const auto verify = [&](int broken) {
        std::vector<float> rows = RowsFor({1, 2, 3, 4}, 5);
        for (float& x : rows) x *= 100;
        rows[static_cast<size_t>(broken) * 5 + 4] = wrong;
        return SampleAndMatch(tree, {rows.data(), tree.size(), 5}, sampler, committed, scratch);
      };
      const auto fine = verify(decoy);  // off the path
      ASSERT_TRUE(fine.ok()) << fine.status().message();
      EXPECT_THAT(fine->tokens, ElementsAre(1, 2, 3));
      const auto after_root = verify(a), after_a = verify(b);
      ASSERT_TRUE(after_root.ok() && after_a.ok());
      EXPECT_THAT(after_root->nodes, ElementsAre(0));
      EXPECT_THAT(after_root->tokens, ElementsAre(1));
      EXPECT_THAT(after_a->nodes, ElementsAre(0, a));
      EXPECT_THAT(after_a->tokens, ElementsAre(1, 2));
      const Status status = verify(0).status();
      EXPECT_EQ(status.code(), StatusCode::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr("position 3"));
    }
  }
}

TEST(SampleAndMatchDeathTest, RowsAndRootMustBelongToTheTree) {
  Sampler::Scratch scratch;
  const Sampler sampler = Make(Greedy(), 2);
  const std::vector<float> rows(4, 0.0F);
  const std::vector<int32_t> committed = {1}, other = {0};
  const TokenTree tree(1);
  EXPECT_DEATH((void)SampleAndMatch(tree, {rows.data(), 2, 2}, sampler, committed, scratch), "logits.size");
  EXPECT_DEATH((void)SampleAndMatch(tree, {rows.data(), 1, 2}, sampler, other, scratch), "committed");
}

// --- With a constraint. ---

ToyConstraint Counting(int32_t end = -1) {
  // 1, 2, 3, ...: or the end, from the third token on.
  return {[end](std::span<const int32_t> answer, int32_t token) {
            if (token == end) return answer.size() >= 2;
            return token == static_cast<int32_t>(answer.size()) + 1;
          },
          6, end};
}

TEST(Constrained, ForbiddenTokensAreAsIfTheyCouldNotOccur) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1);
  tree.AddChild(a, 5);
  ToyConstraint constraint = Counting();
  // Every row likes 5 best.
  const std::vector<float> rows = RowsFor({5, 5, 5}, 6);
  Sampler::Scratch scratch;
  const auto accepted = SampleAndMatch(tree, {rows.data(), 3, 6}, Make(Greedy(), 6), std::vector<int32_t>{0},
                                       scratch, &constraint);
  ASSERT_TRUE(accepted.ok());
  EXPECT_THAT(accepted->tokens, ElementsAre(1, 2));
  EXPECT_THAT(accepted->nodes, ElementsAre(0, a));
  EXPECT_THAT(constraint.accepted, ElementsAre(1, 2));
  EXPECT_EQ(constraint.n_masks, 2);
}

TEST(Constrained, TheyAreGoneBeforeFiltersAndPenalties) {
  SamplingOptions options;
  options.temperature = 1.0F;
  options.top_k = 1;  // would leave 5 alone
  options.presence_penalty = 1.0F;
  ToyConstraint constraint({[](std::span<const int32_t>, int32_t token) { return token == 2 || token == 3; }},
                           6);
  std::vector<float> row = {0, 0, 2.0F, 1.5F, 0, 9};
  Sampler::Scratch scratch;
  const auto choose = [&](std::vector<int32_t> committed) {
    const auto accepted = SampleAndMatch(TokenTree(committed.back()), {row.data(), 1, 6}, Make(options, 6),
                                         committed, scratch, &constraint);
    EXPECT_TRUE(accepted.ok());
    constraint.Rollback(1);
    return accepted->tokens.front();
  };
  EXPECT_EQ(choose({0}), 2);
  EXPECT_EQ(choose({2, 0}), 3);  // 2 was said, and is penalised
}

TEST(Constrained, TheWalkEndsWithTheAnswer) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1);
  const int b = tree.AddChild(a, 2);
  const int end = tree.AddChild(b, 4);
  tree.AddChild(end, 1);
  ToyConstraint constraint = Counting(4);
  const std::vector<float> rows = RowsFor({1, 2, 4, 1, 1}, 6);
  Sampler::Scratch scratch;
  const auto accepted = SampleAndMatch(tree, {rows.data(), 5, 6}, Make(Greedy(), 6), std::vector<int32_t>{0},
                                       scratch, &constraint);
  ASSERT_TRUE(accepted.ok());
  EXPECT_THAT(accepted->tokens, ElementsAre(1, 2, 4));
  EXPECT_TRUE(constraint.ended());
}

TEST(Constrained, ARowWithNothingLeftEndsTheWalkAndIsAnErrorAtTheRoot) {
  TokenTree tree(0);
  tree.AddChild(0, 1);
  ToyConstraint constraint = Counting();
  std::vector<float> rows = RowsFor({1, 2}, 6);
  rows[6 + 2] = -INFINITY;
  Sampler::Scratch scratch;
  const auto accepted = SampleAndMatch(tree, {rows.data(), 2, 6}, Make(Greedy(), 6), std::vector<int32_t>{0},
                                       scratch, &constraint);
  ASSERT_TRUE(accepted.ok());
  EXPECT_THAT(accepted->tokens, ElementsAre(1));
  const auto refused = SampleAndMatch(TokenTree(1), {rows.data() + 6, 1, 6}, Make(Greedy(), 6),
                                      std::vector<int32_t>{0, 1}, scratch, &constraint);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("at position 2: none of the tokens that the grammar allows"));
  EXPECT_THAT(constraint.accepted, ElementsAre(1));
}

// A token that the grammar forces and a bias forbids: not chosen, whatever its number and the filters are.
TEST(Constrained, ATokenThatABiasForbidsIsNotChosen) {
  SamplingOptions plain{.temperature = 0.7F, .top_k = 0, .top_p = 1.0F, .min_p = 0.0F};
  SamplingOptions few = plain, likely = plain, all;
  few.top_k = 2;
  likely.top_p = 0.5F;
  for (SamplingOptions options : {Greedy(), plain, few, likely, all}) {
    for (const int32_t only : {0, 20}) {
      ToyConstraint constraint([only](std::span<const int32_t>, int32_t token) { return token == only; }, 24);
      const std::vector<float> row = RowsFor({only}, 24);
      Sampler::Scratch scratch;
      const auto choose = [&] {
        return SampleAndMatch(TokenTree(1), {row.data(), 1, 24}, Make(options, 24), std::vector<int32_t>{1},
                              scratch, &constraint);
      };
      options.logit_bias = {{only, -INFINITY}};
      const Status refused = choose().status();
      EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(refused.message(), HasSubstr("at position 1: none of the tokens that the grammar allows"));
      EXPECT_THAT(constraint.accepted, ::testing::IsEmpty());
      options.logit_bias = {{only, -100.0F}};
      const auto chosen = choose();
      ASSERT_TRUE(chosen.ok()) << chosen.status().message();
      EXPECT_THAT(chosen->tokens, ElementsAre(only));
    }
  }
}

TEST(SampleAndMatch, BiasesThatForbidAllEndTheWalk) {
  TokenTree tree(0);
  tree.AddChild(0, 1);
  SamplingOptions options = Greedy();
  options.logit_bias = {{0, -INFINITY}, {1, -INFINITY}};
  std::vector<float> rows = RowsFor({2, 2}, 3);
  Sampler::Scratch scratch;
  const auto choose = [&] {
    return SampleAndMatch(tree, {rows.data(), 2, 3}, Make(options, 3), std::vector<int32_t>{0}, scratch);
  };
  EXPECT_THAT(choose()->tokens, ElementsAre(2));
  options.logit_bias.emplace_back(2, -INFINITY);
  EXPECT_THAT(choose().status().message(), HasSubstr("at position 1: none of the tokens can be chosen"));
}

TEST(Constrained, OfATreeOnlyWhatCanBeStays) {
  TokenTree tree(0);
  const int a = tree.AddChild(0, 1);
  tree.AddChild(0, 3);
  const int b = tree.AddChild(a, 2);
  tree.AddChild(a, 4);
  const int end = tree.AddChild(b, 4);
  tree.AddChild(b, 3);
  tree.AddChild(end, 4);  // after the end there is nothing
  ToyConstraint constraint = Counting(4);
  const TokenTree allowed = Allowed(tree, constraint);
  std::vector<int32_t> tokens;
  for (const TreeNode& node : allowed.nodes()) tokens.push_back(node.token);
  EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 4, 3));
  EXPECT_THAT(constraint.accepted, ::testing::IsEmpty());
  EXPECT_EQ(Allowed(allowed, constraint).size(), allowed.size());
}

}  // namespace
}  // namespace longspec::testing
