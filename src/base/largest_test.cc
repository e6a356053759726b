// SPDX-License-Identifier: Apache-2.0
//
// What is kept of a list is the beginning of the sorted list.
#include "base/largest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace longspec {
namespace {

using ::testing::ElementsAre;

// For every n, also 0 and more than there are: the n smallest, of which the largest is last.
TEST(KeepFirst, LeavesTheFirstOfTheOrderAndTheLastOfThemLast) {
  const std::vector<int> all = {7, 3, 9, 1, 8, 2, 6, 4, 5, 0};
  for (size_t n = 0; n <= all.size() + 2; ++n) {
    std::vector<int> kept = all;
    KeepFirst(kept, n, std::less());
    ASSERT_EQ(kept.size(), std::min(n, all.size()));
    if (n == 0) continue;
    if (n < all.size()) {
      EXPECT_EQ(kept.back(), static_cast<int>(n) - 1);
    }
    std::sort(kept.begin(), kept.end());
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i], static_cast<int>(i)) << n;
  }
}

// Equal values stay in the order in which they stood, also across the place where the list is cut.
TEST(KeepLargest, OfEqualOnesTheFirstStay) {
  using Named = std::pair<std::string, int>;
  const std::vector<Named> all = {{"a", 1}, {"b", 2}, {"c", 1}, {"d", 2}, {"e", 0}, {"f", 2}};
  const auto names = [&](size_t n) {
    std::vector<Named> kept = all;
    KeepLargest(kept, n, &Named::second);
    std::string joined;
    for (const Named& one : kept) joined += one.first;
    return joined;
  };
  EXPECT_EQ(names(0), "");
  EXPECT_EQ(names(2), "bd");
  EXPECT_EQ(names(4), "bdfa");
  EXPECT_EQ(names(9), "bdface");
  std::vector<double> numbers = {1, 3, 2};
  KeepLargest(numbers, 2);
  EXPECT_THAT(numbers, ElementsAre(3, 2));
}

}  // namespace
}  // namespace longspec
