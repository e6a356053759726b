// SPDX-License-Identifier: Apache-2.0
//
// Log-probabilities that answers report, and the likeliest tokens.
#include "sampling/log_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace longspec {
namespace {

TEST(LogSoftmax, ChancesAddUpToOne) {
  const std::vector<float> logits = {1.0F, -2.0F, 90.0F, 89.5F, 0.0F};
  const LogSoftmax softmax(logits);
  double sum = 0;
  for (int32_t i = 0; i < 5; ++i) sum += std::exp(static_cast<double>(softmax.Of(i)));
  EXPECT_NEAR(sum, 1.0, 1e-6);
  EXPECT_NEAR(softmax.Of(2) - softmax.Of(3), 0.5, 1e-5);
}

TEST(LogSoftmax, TheLikeliestInOrderAndEqualsByNumber) {
  const std::vector<float> logits = {0.0F, 3.0F, 1.0F, 3.0F, 2.0F};
  std::vector<TokenLogprob> out;
  LogSoftmax(logits).Likeliest(3, out);
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].token, 1);
  EXPECT_EQ(out[1].token, 3);
  EXPECT_EQ(out[2].token, 4);
  EXPECT_EQ(out[0].logprob, out[1].logprob);
  LogSoftmax(logits).Likeliest(50, out);
  ASSERT_EQ(out.size(), 5U);
  const std::vector<int32_t> all = {1, 3, 4, 2, 0};
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(out[i].token, all[i]) << i;
  LogSoftmax(logits).Likeliest(0, out);
  EXPECT_TRUE(out.empty());
}

TEST(LogSoftmax, WhatIsForbiddenHasAFiniteLogarithm) {
  const std::vector<float> logits = {0.0F, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(LogSoftmax(logits).Of(1), std::numeric_limits<float>::lowest());
  EXPECT_EQ(LogSoftmax(logits).Of(0), 0.0F);
}

}  // namespace
}  // namespace longspec
