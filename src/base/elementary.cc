// SPDX-License-Identifier: Apache-2.0
#include "base/elementary.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/dice_functions.h"

namespace longspec {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Constants as sums of doubles, each the rest rounded to nearest.
constexpr double kLn2 = dice_functions::kLn2, kLn2Rest = 0x1.abc9e3b39803fp-56;
constexpr double kOneOverLn2 = 0x1.71547652b82fep+0;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr std::array<double, 3> kHalfPi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                           -0x1.f1976b7ed8fbcp-110};

// 1 / n! for n up to 18, the largest factorials that are doubles.
constexpr auto kInverseFactorial = [] {
  std::array<double, 19> inverse{};
  double factorial = 1.0;
  for (size_t n = 0; n < inverse.size(); ++n) {
    if (n > 0) factorial *= static_cast<double>(n);
    inverse[n] = 1.0 / factorial;
  }
  return inverse;
}();

// The nearest integer, ties to even, as a number and as an integer. |x| < 2^51. No cast that could see NaN.
struct Nearest {
  explicit Nearest(double x) {
    constexpr double kShift = 0x1.8p52;  // numbers about it are integers
    const double shifted = x + kShift;
    number = shifted - kShift;
    integer = std::bit_cast<int64_t>(shifted) - std::bit_cast<int64_t>(kShift);
  }
  double number;
  int64_t integer;
};

// 2^k for k from -1022 to 1023.
double TwoTo(int64_t k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }

// y 2^k, rounded once if y 2^(k/2) is a normal number. |k| < 2000.
double Scaled(double y, int64_t k) {
  const int64_t half = k / 2;
  return y * TwoTo(half) * TwoTo(k - half);
}

// ---- Numbers of twice the length, for what is rounded in the end: high + low, |low| <= half a unit of high.

struct Long {
  double high, low;
};

Long SumOf(double a, double b) {
  const double sum = a + b, from_b = sum - a;
  return {sum, (a - (sum - from_b)) + (b - from_b)};
}
// |a| >= |b| or a = 0
Long OrderedSumOf(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}
Long ProductOf(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}
Long operator+(const Long& a, const Long& b) {
  const Long sum = SumOf(a.high, b.high);
  return OrderedSumOf(sum.high, sum.low + (a.low + b.low));
}
Long operator*(const Long& a, const Long& b) {
  const Long product = ProductOf(a.high, b.high);
  return OrderedSumOf(product.high, product.low + (a.high * b.low + a.low * b.high));
}
Long operator/(const Long& a, double n) {
  const double quotient = a.high / n;
  return OrderedSumOf(quotient, (std::fma(-quotient, n, a.high) + a.low) / n);
}

// x less the nearest multiple k of ln 2.
struct Reduced {
  Long rest;
  int64_t k;
};
Reduced LessLn2(const Long& x) {
  const Nearest n(x.high * kOneOverLn2);
  const Long near = {std::fma(-n.number, kLn2, x.high), x.low};  // exact: few bits are left
  return {near + Long{-n.number * kLn2Rest, -std::fma(n.number, kLn2Rest, -(n.number * kLn2Rest))},
          n.integer};
}

// exp(r) for |r| below 0.4: 1 + r (1 + r/2 (1 + r/3 (...))), to r^26.
Long LongExpOf(const Long& r) {
  Long e = {1.0, 0.0};
  for (double n = 26; n >= 1; --n) e = Long{1.0, 0.0} + r * e / n;
  return e;
}

// log(x), from Log's by one step of Newton's: l + d with 1 + d + ... = x exp(-l).
Long LongLog(double x) {
  const double l = Log(x);
  const Reduced reduced = LessLn2({-l, 0.0});
  const Long e = LongExpOf(reduced.rest);
  const double scaled = Scaled(x, reduced.k);  // times e, it is x exp(-l)
  const Long near_one = ProductOf(scaled, e.high);
  const double d = (near_one.high - 1.0) + (near_one.low + scaled * e.low);
  return SumOf(l, d - d * d / 2);
}

}  // namespace

double Exp(double x) {
  // ln 2 in two parts, so that k times the first is exact.
  constexpr double kHigh = 0x1.62e42feep-1, kLow = 0x1.a39ef35793c76p-33;
  if (!(x < 709.8)) return x >= 709.8 ? kInfinity : kNan;
  if (x < -745.2) return 0.0;
  const Nearest n(x * kOneOverLn2);
  const double r = (x - n.number * kHigh) - n.number * kLow;
  double p = kInverseFactorial[13];
  for (size_t k = 12; k >= 2; --k) p = p * r + kInverseFactorial[k];
  return Scaled(1.0 + (r + r * r * p), n.integer);
}

double Log(double x) { return dice_functions::Log(x); }

double Power(double base, double exponent) {
  const Long log = LongLog(base);
  const Long product = ProductOf(exponent, log.high);
  const Reduced reduced = LessLn2(OrderedSumOf(product.high, product.low + exponent * log.low));
  return Scaled(LongExpOf(reduced.rest).high, reduced.k);
}

CosSin CosSinOf(double x) {
  if (!(std::fabs(x) <= 0x1p45)) return {kNan, kNan};
  // x less the nearest multiple k of pi/2. The first difference is exact: both are multiples of the same
  // power of two, and few bits are left. Of the second, the rounding error is kept.
  const Nearest k(x * kTwoOverPi);
  const double near = std::fma(-k.number, kHalfPi[0], x);
  const Long second = ProductOf(k.number, kHalfPi[1]);
  const Long r = SumOf(near, -second.high);
  const double low = (r.low - second.low) - k.number * kHalfPi[2];

  const double z = r.high * r.high;
  double s = kInverseFactorial[17], c = kInverseFactorial[18];
  for (size_t n = 15; n >= 3; n -= 2) s = kInverseFactorial[n] - z * s;
  for (size_t n = 16; n >= 4; n -= 2) c = kInverseFactorial[n] - z * c;
  const double half = 0.5 * z, rest = 1.0 - half;
  const double sin = r.high + (low * rest - r.high * z * s);
  const double cos = rest + (((1.0 - rest) - half) + (z * z * c - r.high * low));
  switch (k.integer & 3) {
    case 0:
      return {cos, sin};
    case 1:
      return {-sin, cos};
    case 2:
      return {-cos, -sin};
    default:
      return {sin, -cos};
  }
}

}  // namespace longspec
