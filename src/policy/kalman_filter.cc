// SPDX-License-Identifier: Apache-2.0
#include "policy/kalman_filter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace longspec {

KalmanFilter::KalmanFilter(std::vector<double> covariance)
    : mean_(static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(covariance.size()))))),
      covariance_(std::move(covariance)),
      first_(covariance_),
      with_sum_(mean_.size()) {
  LS_CHECK(covariance_.size() == size() * size());
}

double KalmanFilter::Variance(std::span<const Term> sum) const {
  double variance = 0;
  for (const Term& a : sum) {
    for (const Term& b : sum) variance += a.weight * b.weight * covariance_[a.index * size() + b.index];
  }
  return std::max(0.0, variance);
}

void KalmanFilter::Observe(std::span<const Term> sum, double error, double noise) {
  const size_t n = size();
  const double spread = Variance(sum) + noise;
  for (size_t i = 0; i < n; ++i) {
    with_sum_[i] = 0;
    for (const Term& term : sum) with_sum_[i] += term.weight * covariance_[i * n + term.index];
  }
  for (size_t i = 0; i < n; ++i) {
    mean_[i] += with_sum_[i] / spread * error;
    for (size_t j = 0; j < n; ++j) covariance_[i * n + j] -= with_sum_[i] * with_sum_[j] / spread;
    // Rounding could make it negative, and what follows senseless.
    double& variance = covariance_[i * n + i];
    variance = std::max(0.0, variance);
  }
}

void KalmanFilter::Forget(double share) {
  for (size_t i = 0; i < covariance_.size(); ++i) covariance_[i] += share * (first_[i] - covariance_[i]);
}

void KalmanFilter::Drift(size_t i, double variance) { covariance_[i * size() + i] += variance; }

}  // namespace longspec
