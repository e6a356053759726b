// SPDX-License-Identifier: Apache-2.0
//
// The filter weighs what was seen by its certainty.
#include "policy/kalman_filter.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace longspec {
namespace {

using Term = KalmanFilter::Term;

// One number: the mean of observations, with the first belief as one of them.
TEST(KalmanFilter, OfOneNumberIsAWeightedMean) {
  KalmanFilter filter({4.0});
  const std::array<Term, 1> it = {{{0, 1.0}}};
  filter.Observe(it, 3.0, 4.0);
  EXPECT_DOUBLE_EQ(filter.mean(0), 1.5);
  EXPECT_DOUBLE_EQ(filter.Variance(it), 2.0);
  filter.Observe(it, 3.0 - filter.mean(0), 4.0);
  EXPECT_DOUBLE_EQ(filter.mean(0), 2.0);
  EXPECT_DOUBLE_EQ(filter.Variance(it), 4.0 / 3);
}

TEST(KalmanFilter, CorrectsWhatGoesWithWhatWasSeen) {
  KalmanFilter filter({1.0, 0.5, 0.0,  //
                       0.5, 1.0, 0.0,  //
                       0.0, 0.0, 1.0});
  filter.Observe(std::array<Term, 1>{{{0, 1.0}}}, 2.0, 1.0);
  EXPECT_DOUBLE_EQ(filter.mean(0), 1.0);
  EXPECT_DOUBLE_EQ(filter.mean(1), 0.5);
  EXPECT_DOUBLE_EQ(filter.mean(2), 0.0);
}

TEST(KalmanFilter, TakesASumApartAsSurelyAsItsPartsAreKnown) {
  KalmanFilter filter({4.0, 0.0,  //
                       0.0, 1.0});
  const std::array<Term, 2> sum = {{{0, 1.0}, {1, 2.0}}};
  EXPECT_DOUBLE_EQ(filter.Variance(sum), 8.0);
  filter.Observe(sum, 9.0, 1.0);
  EXPECT_DOUBLE_EQ(filter.mean(0), 4.0);
  EXPECT_DOUBLE_EQ(filter.mean(1), 2.0);
}

TEST(KalmanFilter, CertaintyFadesToTheFirst) {
  KalmanFilter filter({1.0});
  const std::array<Term, 1> it = {{{0, 1.0}}};
  for (int i = 0; i < 100; ++i) filter.Observe(it, 0.0, 0.1);
  EXPECT_LT(filter.Variance(it), 0.01);
  for (int i = 0; i < 1000; ++i) filter.Forget(0.01);
  EXPECT_NEAR(filter.Variance(it), 1.0, 0.01);
  filter.Drift(0, 0.5);
  EXPECT_NEAR(filter.Variance(it), 1.5, 0.01);
  filter.Shift(0, 7);
  EXPECT_NEAR(filter.mean(0), 7, 1e-9);
}

// A hundred thousand observations of all kinds: variances stay variances.
TEST(KalmanFilter, StaysSane) {
  constexpr size_t kN = 6;
  std::vector<double> covariance(kN * kN);
  for (size_t i = 0; i < kN; ++i) {
    for (size_t j = 0; j < kN; ++j) {
      covariance[i * kN + j] = std::pow(0.9, std::abs(static_cast<double>(i) - static_cast<double>(j)));
    }
  }
  KalmanFilter filter(covariance);
  const std::vector<double> truth = {0.3, -0.1, 0.2, 0.0, 0.5, -0.4};
  std::mt19937 rng(1);
  std::normal_distribution<double> noise(0, 0.1);
  for (int round = 0; round < 100000; ++round) {
    const size_t a = rng() % kN, b = (a + 1 + rng() % (kN - 1)) % kN;
    const std::array<Term, 2> sum = {{{a, 0.7}, {b, 0.3}}};
    const double error = 0.7 * (truth[a] - filter.mean(a)) + 0.3 * (truth[b] - filter.mean(b));
    filter.Forget(0.001);
    filter.Observe(sum, error + noise(rng), 0.01);
    ASSERT_GE(filter.Variance(sum), 0);
    ASSERT_LT(filter.Variance(sum), 1.01);
  }
  for (size_t i = 0; i < kN; ++i) EXPECT_NEAR(filter.mean(i), truth[i], 0.1) << i;
}

}  // namespace
}  // namespace longspec
