// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "longspec/stats.h"

namespace longspec {
namespace {

TEST(DistinctNgramShare, ShortSequencesHaveNoRepeats) {
  EXPECT_EQ(DistinctNgramShare({}), 1.0);
  EXPECT_EQ(DistinctNgramShare({7, 7, 7}), 1.0);
  EXPECT_EQ(DistinctNgramShare({7, 7, 7, 7}), 1.0);
  EXPECT_EQ(DistinctNgramShare({1, 2}, 0), 1.0);
}

TEST(DistinctNgramShare, CountsEachGramOnce) {
  EXPECT_EQ(DistinctNgramShare({1, 2, 3, 4, 5, 6, 7}), 1.0);
  EXPECT_DOUBLE_EQ(DistinctNgramShare({7, 7, 7, 7, 7}), 1.0 / 2);
  EXPECT_DOUBLE_EQ(DistinctNgramShare({1, 2, 1, 2, 1, 2, 1, 2}), 2.0 / 5);  // 1212 and 2121
  EXPECT_DOUBLE_EQ(DistinctNgramShare({1, 2, 1, 2, 1}, 2), 2.0 / 4);
}

}  // namespace
}  // namespace longspec
