// SPDX-License-Identifier: Apache-2.0
//
// Each function against the C library's in long double, and its bits against those on record: another
// compiler or another machine must not change one.
#include "base/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "base/counter_rng.h"
#include "base/hash.h"

namespace longspec {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Reproducible numbers in [0, 1).
class Numbers {
 public:
  double Next() { return rng_.Uniform(n_++); }
  double Between(double low, double high) { return low + (high - low) * Next(); }

 private:
  RngStream rng_{.seed = 11, .purpose = RngPurpose::kTest};
  uint64_t n_ = 0;
};

// How far `actual` is from the truth, in units of the last place of a double.
double Units(double actual, long double exact) {
  const double near = std::fabs(static_cast<double>(exact));
  const double unit = std::nextafter(near, kInfinity) - near;
  return static_cast<double>(std::fabs(actual - exact) / unit);
}

std::string HashOfBits(const std::vector<double>& values) {
  return ToHex(HashOf(std::as_bytes(std::span(values))));
}

// Less than one unit in the last place from the exact value, for all arguments with a normal result.
TEST(Exp, IsAccurate) {
  Numbers numbers;
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? numbers.Between(-708.0, 709.7) : numbers.Between(-2.0, 2.0);
    ASSERT_LT(Units(Exp(x), std::exp(static_cast<long double>(x))), 1.0) << x;
  }
  for (double x = 1.0; x > 1e-300; x *= 0.37) {
    ASSERT_LT(Units(Exp(x), std::exp(static_cast<long double>(x))), 1.0) << x;
    ASSERT_LT(Units(Exp(-x), std::exp(static_cast<long double>(-x))), 1.0) << x;
  }
  // Where the multiple of ln 2 changes.
  for (int k = -1020; k <= 1020; ++k) {
    double x = (k + 0.5) * std::numbers::ln2;
    for (int i = 0; i < 4; ++i) x = std::nextafter(x, -kInfinity);
    for (int i = 0; i < 8; ++i, x = std::nextafter(x, kInfinity)) {
      ASSERT_LT(Units(Exp(x), std::exp(static_cast<long double>(x))), 1.0) << x;
    }
  }
}

TEST(Exp, EndsInZeroAndInfinity) {
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-0.0), 1.0);
  EXPECT_EQ(Exp(709.79), kInfinity);
  EXPECT_EQ(Exp(710.0), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isfinite(Exp(709.78)));
  EXPECT_EQ(Exp(-745.0), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(Exp(-746.0), 0.0);
  EXPECT_EQ(Exp(-kInfinity), 0.0);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  for (double x = -708.0; x > -745.0; x -= 0.37) {  // results below normal ones
    EXPECT_LE(std::fabs(Exp(x) - std::exp(static_cast<long double>(x))),
              std::numeric_limits<double>::denorm_min())
        << x;
  }
}

// Within 1e-15 of the exact value relatively, also next to 1, where the logarithm itself is nearly 0.
TEST(Log, IsAccurate) {
  const auto error = [](double x) {
    const long double exact = std::log(static_cast<long double>(x));
    return static_cast<double>(std::fabs((Log(x) - exact) / exact));
  };
  for (int e = -1020; e <= 1020; e += 4) {
    for (double m = 1.0001; m < 2.0; m += 0.0137)
      EXPECT_LT(error(std::ldexp(m, e)), 1e-15) << m << " 2^" << e;
  }
  for (double off = 0.6; off > 1e-16; off *= 0.97) {
    for (const double x : {1.0 - off, 1.0 + off}) {
      if (x != 1.0) {
        EXPECT_LT(error(x), 1e-15) << x;
      }
    }
  }
  // Where the mantissa's range ends.
  for (const double edge : {0.70710678118654752, 1.4142135623730951, 2.8284271247461903}) {
    double x = edge;
    for (int i = 0; i < 8; ++i) x = std::nextafter(x, 0.0);
    for (int i = 0; i < 16; ++i, x = std::nextafter(x, 4.0)) EXPECT_LT(error(x), 1e-15) << x;
  }
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_LT(error(std::numeric_limits<double>::min()), 1e-15);
  EXPECT_LT(error(std::numeric_limits<double>::max()), 1e-15);
}

// Within 0.51 units in the last place for the powers that tables of rotation take, and 0.6 for others.
TEST(Power, IsAccurate) {
  Numbers numbers;
  // A rotary table's: theta to the powers from -1 to 0.
  for (const double base : {10000.0, 500000.0, 1000000.0, 150000.0, 10.0, 1.5, 2.0, 1e8}) {
    for (const int n_rot : {64, 80, 96, 128, 256}) {
      for (int i = 0; i < n_rot / 2; ++i) {
        const double exponent = -2.0 * i / n_rot;
        ASSERT_LT(Units(Power(base, exponent), std::pow(static_cast<long double>(base), exponent)), 0.51)
            << base << " " << exponent;
      }
    }
  }
  for (int i = 0; i < 20000; ++i) {
    const double base = std::ldexp(numbers.Between(1.0, 2.0), static_cast<int>(numbers.Between(-300, 300)));
    const double exponent = numbers.Between(-3.0, 3.0);
    // The last places of a long double are lost where the result is large or small.
    ASSERT_LT(Units(Power(base, exponent), std::pow(static_cast<long double>(base), exponent)), 0.6)
        << base << " " << exponent;
  }
}

TEST(Power, OfWholeExponentsIsExact) {
  EXPECT_EQ(Power(10000.0, 0.0), 1.0);
  EXPECT_EQ(Power(10000.0, 1.0), 10000.0);
  EXPECT_EQ(Power(10000.0, -0.5), 0.01);
  EXPECT_EQ(Power(2.0, -30.0), 0x1p-30);
  EXPECT_EQ(Power(1.0, 123.0), 1.0);
}

void ExpectCosSin(double x) {
  const auto [cos, sin] = CosSinOf(x);
  const long double exact = x;
  ASSERT_LT(Units(cos, std::cos(exact)), 1.0) << "cos of " << x;
  ASSERT_LT(Units(sin, std::sin(exact)), 1.0) << "sin of " << x;
}

// Small, usual and huge angles, which have to be reduced by many turns first.
TEST(CosSin, AreAccurate) {
  Numbers numbers;
  for (int i = 0; i < 200000; ++i) {
    ASSERT_NO_FATAL_FAILURE(ExpectCosSin(numbers.Between(-4.0, 4.0)));
    ASSERT_NO_FATAL_FAILURE(ExpectCosSin(numbers.Between(0.0, 1e6)));
  }
  for (int e = -300; e <= 45; ++e) {
    for (int i = 0; i < 100; ++i) {
      ASSERT_NO_FATAL_FAILURE(ExpectCosSin(std::ldexp(numbers.Between(0.5, 1.0), e)));
    }
  }
}

// The doubles nearest to a multiple of pi/2, where one of the two almost vanishes, and where the multiple
// changes.
TEST(CosSin, AreAccurateAroundMultiplesOfARightAngle) {
  for (int64_t k = 0; k < 2000000; k += 1 + k / 50) {
    for (const double at : {static_cast<double>(k), static_cast<double>(k) + 0.5}) {
      double x = at * (std::numbers::pi / 2);
      for (int i = 0; i < 3; ++i) x = std::nextafter(x, -kInfinity);
      for (int i = 0; i < 6; ++i, x = std::nextafter(x, kInfinity)) ASSERT_NO_FATAL_FAILURE(ExpectCosSin(x));
    }
  }
}

TEST(CosSin, KeepToTheirSymmetriesAndRange) {
  EXPECT_EQ(CosSinOf(0.0).cos, 1.0);
  EXPECT_EQ(CosSinOf(0.0).sin, 0.0);
  Numbers numbers;
  for (int i = 0; i < 1000; ++i) {
    const double x = numbers.Between(0, 1e5);
    const auto plus = CosSinOf(x), minus = CosSinOf(-x);
    ASSERT_EQ(plus.cos, minus.cos) << x;
    ASSERT_EQ(plus.sin, -minus.sin) << x;
    ASSERT_LE(std::fabs(plus.cos), 1.0);
    ASSERT_LE(std::fabs(plus.sin), 1.0);
  }
  for (const double x : {0x1.1p45, -1e300, kInfinity, -kInfinity, kNan}) {
    EXPECT_TRUE(std::isnan(CosSinOf(x).cos)) << x;
    EXPECT_TRUE(std::isnan(CosSinOf(x).sin)) << x;
  }
}

TEST(Elementary, BitsAreThoseOnRecord) {
  Numbers numbers;
  std::vector<double> exps, logs, powers, angles;
  for (int i = 0; i < 20000; ++i) {
    exps.push_back(Exp(numbers.Between(-745.0, 20.0)));
    logs.push_back(Log(numbers.Between(1e-9, 40.0)));
    const auto [cos, sin] = CosSinOf(numbers.Between(0.0, 1e6));
    angles.insert(angles.end(), {cos, sin});
  }
  for (int i = 0; i < 500; ++i) {
    const double base = numbers.Between(2.0, 1e6);
    powers.push_back(Power(base, numbers.Between(-1.0, 0.0)));
  }
  EXPECT_EQ(HashOfBits(exps), "42dc31a9107e4f84d3a94ec378ec1ca9");
  EXPECT_EQ(HashOfBits(logs), "e1f31dd1549d1939b498407b4f58814c");
  EXPECT_EQ(HashOfBits(powers), "47d197c37996c2885cdccf727f343085");
  EXPECT_EQ(HashOfBits(angles), "39119139d60d7a2a222c831b2ddb873a");
}

}  // namespace
}  // namespace longspec
