// SPDX-License-Identifier: Apache-2.0
//
// The most probable tokens of a row are those of a sorted softmax.
#include "sampling/top_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/counter_rng.h"
#include "kernels/dispatch.h"

namespace longspec {
namespace {

std::vector<float> Logits(int n, uint64_t seed, int distinct) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  std::vector<float> logits;
  for (int i = 0; i < n; ++i) {
    const double u = rng.Uniform(static_cast<uint64_t>(i));
    logits.push_back(static_cast<float>(std::floor(u * distinct) * 20.0 / distinct - 7.0));
  }
  return logits;
}

TEST(TopTokens, AreTheSortedSoftmax) {
  for (const kernels::KernelTable* table : kernels::Available()) {
    for (const int n : {1, 2, 15, 16, 255, 256, 257, 5000}) {
      for (const int distinct : {3, 1 << 20}) {  // with and without ties
        const std::vector<float> logits = Logits(n, static_cast<uint64_t>(n), distinct);
        std::vector<int32_t> order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        double sum = 0;
        for (const float x : logits) sum += std::exp(static_cast<double>(x));
        for (const int k : {1, 4, 16, 300}) {
          std::vector<TokenScore> out = {{5, -1.0}};
          TopTokens(*table, logits.data(), n, k, {}, out);
          ASSERT_EQ(out.size(), static_cast<size_t>(std::min(k, n)));
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(out[i].token, order[i]) << table->name;
            const double expected =
                static_cast<double>(logits[static_cast<size_t>(order[i])]) - std::log(sum);
            EXPECT_NEAR(out[i].log_prob, expected, 1e-6);
            EXPECT_LE(out[i].log_prob, 0.0);
          }
        }
      }
    }
  }
}

TEST(TopTokens, AreNamedByTheirVocabulary) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F};
  const std::vector<int32_t> vocab = {10, 20, 30};
  std::vector<TokenScore> out;
  TopTokens(*kernels::Available().front(), logits.data(), 3, 2, vocab, out);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].token, 20);
  EXPECT_EQ(out[1].token, 30);
}

TEST(TopTokens, OneTokenIsCertain) {
  const float logit = -4.0F;
  std::vector<TokenScore> out;
  TopTokens(*kernels::Available().front(), &logit, 1, 3, {}, out);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].log_prob, 0.0);
}

TEST(TopTokens, WhatIsNoNumberGivesNothing) {
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(40, 1.0F);
    logits[33] = bad;
    std::vector<TokenScore> out = {{1, 0.0}};
    TopTokens(*kernels::Available().front(), logits.data(), 40, 5, {}, out);
    EXPECT_TRUE(out.empty());
  }
  std::vector<TokenScore> out = {{1, 0.0}};
  TopTokens(*kernels::Available().front(), nullptr, 0, 5, {}, out);
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace longspec
