// SPDX-License-Identifier: Apache-2.0
//
// The running mean of a cost, which forgets; the first value counts as it is.
#pragma once

namespace longspec {

class RunningMean {
 public:
  static constexpr double kRate = 0.2;

  void Add(double x) {
    value_ = known_ ? value_ + kRate * (x - value_) : x;
    known_ = true;
  }
  bool known() const { return known_; }
  double value() const { return value_; }

 private:
  double value_ = 0;
  bool known_ = false;
};

}  // namespace longspec
