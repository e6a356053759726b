// SPDX-License-Identifier: Apache-2.0
//
// The share of n-grams that are distinct, against a set of all of them.
#include <gtest/gtest.h>

#include <set>

#include "base/counter_rng.h"
#include "longspec/stats.h"

namespace longspec {
namespace {

TEST(DistinctNgramShare, ShortAndDegenerateInputsAreDistinct) {
  EXPECT_EQ(DistinctNgramShare({}), 1.0);
  EXPECT_EQ(DistinctNgramShare({1, 1, 1}), 1.0);
  EXPECT_EQ(DistinctNgramShare({1, 1, 1}, 0), 1.0);
  EXPECT_EQ(DistinctNgramShare({1, 2, 3, 4}), 1.0);
}

TEST(DistinctNgramShare, LoopsLowerIt) {
  EXPECT_DOUBLE_EQ(DistinctNgramShare({1, 1, 1, 1, 1, 1}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(DistinctNgramShare({1, 2, 1, 2, 1, 2, 1, 2}), 2.0 / 5);
  EXPECT_DOUBLE_EQ(DistinctNgramShare({1, 2, 3, 1, 2, 3}, 2), 3.0 / 5);
  EXPECT_DOUBLE_EQ(DistinctNgramShare({5, 5, 6}, 1), 2.0 / 3);
}

TEST(DistinctNgramShare, EqualsASetOfNgrams) {
  const RngStream rng{.seed = 2, .purpose = RngPurpose::kTest};
  for (uint64_t round = 0; round < 50; ++round) {
    std::vector<int32_t> tokens(static_cast<size_t>(rng.Uniform(round) * 200) + 4);
    for (uint32_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(rng.Uniform(round, i + 1) * 3);
    std::set<std::vector<int32_t>> grams;
    for (auto at = tokens.begin(); at + 4 <= tokens.end(); ++at) grams.emplace(at, at + 4);
    EXPECT_DOUBLE_EQ(DistinctNgramShare(tokens),
                     static_cast<double>(grams.size()) / static_cast<double>(tokens.size() - 3));
  }
}

}  // namespace
}  // namespace longspec
