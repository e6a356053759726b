// SPDX-License-Identifier: Apache-2.0
//
// The index of n-grams finds what a scan finds, at a cost that does not grow with the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/counter_rng.h"
#include "draft_text/ngram.h"
#include "draft_text/testing/cold_cost.h"
#include "draft_text/testing/prose.h"

namespace longspec {
namespace {

// Continuations of the last n tokens, oldest first, by looking everywhere.
std::vector<int> Scan(const std::vector<int32_t>& tokens, int n) {
  std::vector<int> found;
  const auto size = static_cast<int>(tokens.size());
  for (int c = n; c < size; ++c) {
    if (std::equal(tokens.begin() + c - n, tokens.begin() + c, tokens.end() - n)) found.push_back(c);
  }
  return found;
}

void ExpectEqualsScan(const NgramIndex& index, const std::vector<int32_t>& tokens, int min_n, int max_n) {
  for (int n = min_n; n <= max_n; ++n) {
    const std::vector<int> expected = Scan(tokens, n);
    ASSERT_EQ(index.First(n), expected.empty() ? -1 : expected.front()) << "n " << n;
    std::vector<int> chain;
    for (int c = index.Last(n); c >= 0; c = index.Previous(n, c)) chain.push_back(c);
    std::reverse(chain.begin(), chain.end());
    ASSERT_EQ(chain, expected) << "n " << n;
  }
}

std::vector<int32_t> RandomText(uint64_t seed, size_t size, int letters) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  std::vector<int32_t> text(size);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<int32_t>(rng.Uniform(i) * letters);
  return text;
}

TEST(NgramIndex, EqualsAScanAfterEveryToken) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<int32_t> text = RandomText(seed, 150, 3);
    NgramIndex index(1, 5);
    std::vector<int32_t> so_far;
    for (const int32_t token : text) {
      so_far.push_back(token);
      index.Append({&token, 1});
      ExpectEqualsScan(index, so_far, 1, 5);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NgramIndex, GrowsWithManyNgrams) {
  const std::vector<int32_t> text = RandomText(1, 5000, 40);
  NgramIndex index(2, 3);
  const size_t empty = index.bytes();
  index.Append(text);
  ExpectEqualsScan(index, text, 2, 3);
  EXPECT_GT(index.bytes(), empty + text.size() * 12);
}

TEST(NgramIndex, AssignExtendsOrStartsAgain) {
  const std::vector<int32_t> text = RandomText(2, 60, 3);
  NgramIndex index(1, 3);
  for (const size_t size : {10, 40, 25, 25, 60}) {  // 25 is shorter than what is known
    const std::vector<int32_t> part(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
    index.Assign(part);
    ExpectEqualsScan(index, part, 1, 3);
  }
  std::vector<int32_t> other = text;
  other[5] = 7;
  other.push_back(1);
  index.Assign(other);
  ExpectEqualsScan(index, other, 1, 3);
  index.Assign({});
  EXPECT_EQ(index.Last(1), -1);
  EXPECT_TRUE(index.tokens().empty());
}

TEST(NgramIndex, ShortSequencesHaveNothing) {
  NgramIndex index(2, 4);
  EXPECT_EQ(index.First(2), -1);
  const std::vector<int32_t> text = {1, 1};
  index.Append(text);
  for (int n = 2; n <= 4; ++n) EXPECT_EQ(index.Last(n), -1);
}

// What the drafter does for a committed token: it is appended, and the longest known suffix looked up. Beside
// a model the memory is cold, whatever the size.
TEST(NgramIndex, ATokenCostsAboutTheSameInALongText) {
  if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP();
  struct Growing {
    explicit Growing(size_t n) : text(testing::Prose(n + testing::kMostColdCalls)), next(n) {
      index.Append(std::span(text).first(n));
      bytes = static_cast<double>(index.bytes()) / static_cast<double>(n);
    }
    void operator()() {
      index.Append({&text[next++], 1});
      for (int length = 4; length >= 2 && index.Last(length) < 0; --length) {
      }
    }
    std::vector<int32_t> text;
    size_t next;
    NgramIndex index{2, 4};
    double bytes = 0;
  };
  Growing small(1000), large(100000);
  std::printf("a token after 1K: %.0f bytes; after 100K: %.0f bytes\n", small.bytes, large.bytes);
  EXPECT_LT(testing::LeastColdRatio(std::ref(large), std::ref(small), 2.0), 2.0);
  EXPECT_LT(large.bytes, 2 * small.bytes);
}

TEST(NgramIndexDeathTest, LengthsMustBeIndexed) {
  EXPECT_DEATH(NgramIndex(0, 3), "min_n");
  EXPECT_DEATH(NgramIndex(4, 3), "min_n");
  const NgramIndex index(2, 3);
  EXPECT_DEATH(static_cast<void>(index.Last(1)), "levels_");
  EXPECT_DEATH(static_cast<void>(index.Previous(2, 5)), "continuation");
}

}  // namespace
}  // namespace longspec
