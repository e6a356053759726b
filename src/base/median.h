// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

namespace longspec {

// The middle value, or the mean of the two in the middle. REQUIRES: not empty
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return 0.5 * (values[values.size() / 2] + values[(values.size() - 1) / 2]);
}

}  // namespace longspec
