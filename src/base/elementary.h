// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions in double, by stated series: the same bits on every machine, where the C library's
// differ from version to version. What an answer depends on is computed with these (docs/arithmetic.md): the
// dice, the sampler's filters, rotary positions. Each operation is one of IEEE-754, rounded to nearest; `fma`
// is fused where it is written and nowhere else. Pure functions.
#pragma once

namespace longspec {

// exp(x), within one unit in the last place of a normal result. NaN for NaN.
double Exp(double x);

// The natural logarithm of a normal positive number: x = m 2^e with m in [sqrt(1/2), sqrt(2)), s = (m - 1) /
// (m + 1), and e ln 2 + 2 s (1 + s^2/3 + s^4/5 + ... + s^20/21), without fused operations. Within 1e-15 of
// the truth, relative to it also near 1.
double Log(double x);

// base^exponent, within 0.51 units in the last place. REQUIRES: base is normal and positive, and the result
// is in [2^-1000, 2^1000].
double Power(double base, double exponent);

struct CosSin {
  double cos, sin;
};

// Both within one unit in the last place. NaN where x is not finite, or larger than 2^45 in magnitude.
CosSin CosSinOf(double x);

}  // namespace longspec
