// SPDX-License-Identifier: Apache-2.0
//
// The table of 4-grams against counting them, and what grows from it.
#include "draft_text/ngram_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "draft_model/testing/longspec_files.h"
#include "draft_text/suffix_growth.h"

namespace longspec {
namespace {

NgramTable TableOf(const std::vector<int32_t>& text) {
  NgramTable table;
  for (const int32_t token : text) table.Append(token);
  return table;
}

struct Counted {
  std::vector<int32_t> tokens;
  int count = 0, last = 0;
};

// All 4-grams that begin with a token, the most frequent first, of equal counts the newest.
std::vector<Counted> CountNaively(const std::vector<int32_t>& text, int32_t first) {
  std::map<std::vector<int32_t>, Counted> all;
  for (size_t i = 0; i + 4 <= text.size(); ++i) {
    if (text[i] != first) continue;
    const std::vector<int32_t> tokens(text.begin() + static_cast<std::ptrdiff_t>(i),
                                      text.begin() + static_cast<std::ptrdiff_t>(i) + 4);
    Counted& one = all[tokens];
    one.tokens = tokens;
    ++one.count;
    one.last = static_cast<int>(i) + 3;
  }
  std::vector<Counted> order;
  for (const auto& [tokens, one] : all) order.push_back(one);
  std::ranges::sort(order, [](const Counted& a, const Counted& b) {
    return a.count != b.count ? a.count > b.count : a.last > b.last;
  });
  return order;
}

TEST(NgramTable, HoldsTheMostFrequentOnesOfEachFirstToken) {
  for (const int vocab : {3, 6, 40}) {
    const std::vector<int32_t> text = testing::RandomTokens(3000, 5, vocab);
    const NgramTable table = TableOf(text);
    bool cut = false;
    for (int32_t first = -1; first <= vocab; ++first) {
      std::vector<Counted> expected = CountNaively(text, first);
      cut |= expected.size() > NgramTable::kMost;
      expected.resize(std::min<size_t>(expected.size(), NgramTable::kMost));
      const std::vector<NgramTable::Entry> best = table.Best(first);
      ASSERT_EQ(best.size(), expected.size());
      for (size_t i = 0; i < best.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(best[i].tokens, expected[i].tokens)) << i;
        EXPECT_EQ(best[i].count, expected[i].count) << i;
        EXPECT_EQ(best[i].last, expected[i].last) << i;
      }
    }
    EXPECT_TRUE(cut);
  }
}

TEST(NgramTable, ContinuationsAreSharesOfTheirOccurrences) {
  // 1 2 3 4 twice, 1 2 5 6 and 1 7 8 9 once: of four occurrences, and four more that are doubted.
  const NgramTable table = TableOf({1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 5, 6, 1, 7, 8, 9});
  std::vector<Continuation> next;
  table.Continuations(table.After(1), 10, next);
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].token, 2);
  EXPECT_DOUBLE_EQ(next[0].share, 3.0 / 8);
  EXPECT_EQ(next[1].token, 7);
  EXPECT_DOUBLE_EQ(next[1].share, 1.0 / 8);
  const SuffixContext after_2 = next[0].context;
  table.Continuations(after_2, 10, next);
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].token, 3);
  EXPECT_DOUBLE_EQ(next[0].share, 2.0 / 7);
  const SuffixContext after_3 = next[0].context;
  table.Continuations(after_3, 10, next);
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].token, 4);
  EXPECT_DOUBLE_EQ(next[0].share, 2.0 / 6);
  const SuffixContext end = next[0].context;
  table.Continuations(end, 10, next);
  EXPECT_TRUE(next.empty());
  table.Continuations(table.After(1), 1, next);
  EXPECT_EQ(next.size(), 1U);
  table.Continuations(table.After(99), 10, next);
  EXPECT_TRUE(next.empty());
}

// Every continuation of a token is a path, three tokens deep, and none is there that did not occur.
TEST(NgramTable, GrowsItsContinuations) {
  const std::vector<int32_t> text = testing::RandomTokens(400, 8, 12);
  const NgramTable table = TableOf(text);
  TokenTree tree(5);
  SuffixGrower grower;
  AddToTree(
      grower.Grow(table, table.After(5), {.max_nodes = 100, .max_depth = 9, .width = NgramTable::kMost}),
      tree);
  EXPECT_EQ(tree.max_depth(), 3);
  int n_leaves = 0;
  for (int i = 1; i < tree.size(); ++i) {
    if (tree.node(i).depth < 3) continue;
    ++n_leaves;
    std::vector<int32_t> path;
    for (const int32_t node : tree.PathTo(i)) path.push_back(tree.node(node).token);
    const auto counted = CountNaively(text, 5);
    EXPECT_TRUE(std::ranges::any_of(counted, [&](const Counted& one) { return one.tokens == path; }));
  }
  EXPECT_EQ(n_leaves, static_cast<int>(table.Best(5).size()));
}

TEST(NgramTable, BeginsAgainAndTakesNoMoreThanItSays) {
  NgramTable table = TableOf({1, 2, 3, 4, 5});
  table.Clear();
  EXPECT_TRUE(table.Best(1).empty());
  for (const int32_t token : {1, 2, 3}) table.Append(token);
  EXPECT_TRUE(table.Best(1).empty());  // 4-grams do not go across
  table.Append(9);
  ASSERT_EQ(table.Best(1).size(), 1U);
  for (const int vocab : {4, 300, 1 << 20}) {
    const NgramTable large = TableOf(testing::RandomTokens(20000, 5, vocab));
    EXPECT_LE(large.bytes(), 20000 * NgramTable::kMostBytes) << vocab;
  }
}

}  // namespace
}  // namespace longspec
