// SPDX-License-Identifier: Apache-2.0
//
// The few largest logits are the beginning of a sorted row.
#include "sampling/top_logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Top(const std::vector<float>& logits, size_t k) {
  std::vector<int32_t> tokens(k, -7);
  tokens.resize(static_cast<size_t>(TopLogits(logits, tokens)));
  return tokens;
}

TEST(TopLogits, IsTheBeginningOfASort) {
  std::mt19937 rng(1);
  for (const size_t n : {1U, 7U, 63U, 64U, 65U, 1000U, 1037U}) {
    for (const unsigned values : {3U, 50U, 1000000U}) {
      std::vector<float> logits(n);
      for (float& x : logits) x = static_cast<float>(rng() % values) - 20.0F;
      std::vector<int32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      for (const size_t k : {1U, 8U, 64U}) {
        const auto expected =
            std::vector<int32_t>(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(k, n)));
        EXPECT_EQ(Top(logits, k), expected) << n << " " << k;
      }
    }
  }
}

TEST(TopLogits, WhatIsImpossibleIsNotALikelyToken) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  EXPECT_THAT(Top({-kInf, 1, nan, 3, -kInf}, 4), ElementsAre(3, 1));
  EXPECT_THAT(Top({nan, nan}, 2), IsEmpty());
  EXPECT_THAT(Top({}, 2), IsEmpty());
  EXPECT_THAT(Top({1, 2}, 0), IsEmpty());
  EXPECT_THAT(Top({1, kInf}, 2), ElementsAre(1, 0));
  // In a whole block too, wherever it stands in a lane.
  for (size_t at = 0; at < 64; ++at) {
    std::vector<float> logits(256, 0.0F);
    logits[0] = 1;
    logits[128 + at] = nan;
    logits[128 + (at + 16) % 64] = 2;
    EXPECT_THAT(Top(logits, 2), ElementsAre(static_cast<int32_t>(128 + (at + 16) % 64), 0)) << at;
  }
}

TEST(ShareOfLargest, IsTheSoftmax) {
  EXPECT_FLOAT_EQ(ShareOfLargest(std::vector<float>{1, 1, 1, 1}, 2), 0.25F);
  EXPECT_FLOAT_EQ(ShareOfLargest(std::vector<float>{100, 0, 0}, 0), 1.0F);
  EXPECT_NEAR(ShareOfLargest(std::vector<float>{2, 1, -1000}, 0), 1 / (1 + std::exp(-1.0)), 1e-6);
}

}  // namespace
}  // namespace longspec
