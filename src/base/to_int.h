// SPDX-License-Identifier: Apache-2.0
//
// From a number of any size to an integer: C++ leaves open what a cast does where the integer type has no
// such value, and NaN has none anywhere.
#pragma once

namespace longspec {

// x without its fraction, within [low, high]; `low` for NaN.
inline int ToInt(double x, int low, int high) {
  if (!(x > low)) return low;
  return x < high ? static_cast<int>(x) : high;
}

}  // namespace longspec
