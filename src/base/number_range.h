// SPDX-License-Identifier: Apache-2.0
//
// Which numbers an option takes, and what to say of others. Immutable.
#pragma once

#include <limits>
#include <string>

namespace longspec {

class NumberRange {
 public:
  // Both ends are included; without `high` any finite number from `low` on is right.
  explicit NumberRange(double low, double high = std::numeric_limits<double>::infinity())
      : low_(low), high_(high) {}
  static NumberRange Positive();

  // Why the text is none of them, on one line that begins with "must be"; empty: it is one.
  std::string Check(const std::string& text) const;
  // "0 or more", "1 to 64", "more than 0".
  std::string Describe() const;

 private:
  double low_, high_;
  bool low_excluded_ = false;
};

}  // namespace longspec
