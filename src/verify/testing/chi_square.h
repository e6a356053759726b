// SPDX-License-Identifier: Apache-2.0
//
// Goodness of fit for tests: how surprising are these counts, if the law is this one?
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace longspec::testing {

// Upper regularised incomplete gamma function Q(a, x), by its series or its continued fraction.
inline double UpperGamma(double a, double x) {
  if (x <= 0) return 1.0;
  const double scale = std::exp(-x + a * std::log(x) - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10000 && term > sum * 1e-16; ++n) sum += term *= x / (a + n);
    return 1 - sum * scale;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < 10000; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return scale * h;
}

// Probability that counts drawn from `law` deviate at least as much (Pearson). Cells expected fewer than five
// times are merged into one; a count where the law has no probability at all gives 0.
inline double ChiSquarePValue(const std::vector<int64_t>& counts, const std::vector<double>& law) {
  double total = 0;
  for (const int64_t c : counts) total += static_cast<double>(c);
  double statistic = 0, rare_expected = 0, rare_count = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < law.size(); ++i) {
    const double expected = law[i] * total, count = static_cast<double>(counts[i]);
    if (expected == 0 && count > 0) return 0.0;
    if (expected >= 5) {
      add(count, expected);
    } else {
      rare_expected += expected;
      rare_count += count;
    }
  }
  if (rare_expected > 0) add(rare_count, rare_expected);
  return cells < 2 ? 1.0 : UpperGamma((cells - 1) / 2.0, statistic / 2.0);
}

}  // namespace longspec::testing
