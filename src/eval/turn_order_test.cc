// SPDX-License-Identifier: Apache-2.0
//
// Methods that are compared take turns, so that none is always first.
#include "eval/turn_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace longspec {
namespace {

TEST(TurnOrder, EachComesAfterEachAlike) {
  for (size_t n = 1; n <= 8; ++n) {
    TurnOrder order(n);
    std::vector<int> after(n * n);
    size_t last = n;
    for (int round = 0; round < 60; ++round) {
      std::vector<bool> waiting(n, true);
      for (size_t i = 0; i < n; ++i) {
        const size_t next = order.Next(waiting, i);
        ASSERT_TRUE(waiting[next]);
        waiting[next] = false;
        if (last < n) ++after[last * n + next];
        last = next;
      }
      EXPECT_EQ(std::ranges::count(waiting, true), 0);
    }
    const auto [least, most] = std::ranges::minmax(after);
    EXPECT_LE(most - least, n <= 3 ? 2 : 4) << n;
  }
}

TEST(TurnOrder, OneThatEndedIsNotAsked) {
  TurnOrder order(3);
  std::vector<size_t> asked;
  for (int round = 0; round < 4; ++round) {
    std::vector<bool> waiting = {true, false, true};
    for (size_t i = 0; i < 2; ++i) {
      asked.push_back(order.Next(waiting, i));
      waiting[asked.back()] = false;
    }
  }
  EXPECT_EQ(asked, (std::vector<size_t>{0, 2, 2, 0, 0, 2, 2, 0}));
}

}  // namespace
}  // namespace longspec
