// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "verify/testing/rules.h"

namespace longspec::testing {

std::vector<double> Residual(Dense p, Dense q, double a, double b) {
  LS_CHECK(p.size() == q.size());
  std::vector<double> left(p.size());
  bool any = false;
  for (size_t i = 0; i < p.size(); ++i) {
    left[i] = std::max(0.0, a * p[i] - b * q[i]);
    any = any || left[i] > 0.0;
  }
  if (!any) left.assign(p.begin(), p.end());
  return left;
}

}  // namespace longspec::testing
