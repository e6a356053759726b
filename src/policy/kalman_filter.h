// SPDX-License-Identifier: Apache-2.0
//
// What is believed of a few unknown numbers, and how surely: a normal distribution (mean and covariance) that
// noisy sums of them correct (Kalman 1960). A correction reaches every number whose error goes with those
// that were seen. Certainty fades: with each Forget the covariance moves towards the first one, which it
// never exceeds but by what was said to drift.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace longspec {

class KalmanFilter {
 public:
  // Means are 0. `covariance`: (n, n), positive semidefinite.
  explicit KalmanFilter(std::vector<double> covariance);

  size_t size() const { return mean_.size(); }
  double mean(size_t i) const { return mean_[i]; }

  // A sum of `weight` times the number `index`.
  struct Term {
    size_t index;
    double weight;
  };
  double Variance(std::span<const Term> sum) const;

  // The sum is `error` more than the means say, up to noise of variance `noise`, which is positive.
  void Observe(std::span<const Term> sum, double error, double noise);
  void Forget(double share);              // 0 to 1
  void Drift(size_t i, double variance);  // number i may have changed by so much
  void Shift(size_t i, double by) { mean_[i] += by; }

 private:
  std::vector<double> mean_, covariance_, first_;
  std::vector<double> with_sum_;  // covariances of each number with a sum
};

}  // namespace longspec
