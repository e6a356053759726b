// SPDX-License-Identifier: Apache-2.0
//
// Conversion of 16-bit floats, for every value there is.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace longspec {
namespace {

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }

// The definition of binary16, in exact double arithmetic. REQUIRES: h is not NaN.
double ValueOf(uint16_t h) {
  const int exponent = (h >> 10) & 0x1F, mantissa = h & 0x3FF;
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1F) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

bool IsNaN(uint16_t h) { return (h & 0x7FFF) > 0x7C00; }

TEST(HalfTest, EveryHalfHasItsValue) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = HalfToFloat(h);
    if (IsNaN(h)) {
      // Quiet, with sign and payload.
      ASSERT_EQ(Bits(f), ((i & 0x8000) << 16) | 0x7FC00000 | ((i & 0x3FF) << 13)) << i;
    } else {
      ASSERT_EQ(Bits(f), Bits(static_cast<float>(ValueOf(h)))) << i;
      ASSERT_EQ(FloatToHalf(f), h) << i;
    }
  }
}

TEST(HalfTest, RoundsToNearestEvenAroundEveryMidpoint) {
  for (uint16_t h = 0; h < 0x7BFF; ++h) {
    // Exact in f32: halves have 11 significant bits.
    const auto midpoint = static_cast<float>((ValueOf(h) + ValueOf(static_cast<uint16_t>(h + 1))) / 2);
    const auto even = static_cast<uint16_t>(h + (h & 1));
    ASSERT_EQ(FloatToHalf(midpoint), even) << h;
    ASSERT_EQ(FloatToHalf(-midpoint), even | 0x8000) << h;
    ASSERT_EQ(FloatToHalf(std::nextafter(midpoint, 0.0F)), h) << h;
    ASSERT_EQ(FloatToHalf(std::nextafter(midpoint, 1e9F)), h + 1) << h;
  }
  EXPECT_EQ(FloatToHalf(65504.0F), 0x7BFF);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xFC00);
}

#ifdef __FLT16_MANT_DIG__
#ifdef __aarch64__
using CompilersHalf = __fp16;  // g++ 12 has no other there
#else
using CompilersHalf = _Float16;
#endif

TEST(HalfTest, EveryHalfIsAsTheCompilerHasIt) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto h = static_cast<uint16_t>(i);
    ASSERT_EQ(Bits(HalfToFloat(h)), Bits(static_cast<float>(std::bit_cast<CompilersHalf>(h)))) << i;
  }
}

TEST(HalfTest, SampledFloatsAreAsTheCompilerHasThem) {
  // A prime stride meets every exponent, denormals, infinity's neighbours and NaNs of both signs.
  for (uint64_t i = 0; i <= 0xFFFFFFFF; i += 1999) {
    const auto f = std::bit_cast<float>(static_cast<uint32_t>(i));
    ASSERT_EQ(FloatToHalf(f), std::bit_cast<uint16_t>(static_cast<CompilersHalf>(f))) << i;
  }
}
#endif

TEST(BFloat16Test, EveryValueSurvivesAndRoundingIsToNearestEven) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = BFloat16ToFloat(h);
    ASSERT_EQ(Bits(f), i << 16);
    if (std::isnan(f)) {
      ASSERT_EQ(FloatToBFloat16(f), h | 0x40);
      continue;
    }
    ASSERT_EQ(FloatToBFloat16(f), h);
    if (std::isinf(f)) continue;
    const auto with_tail = [&](uint32_t tail) {
      return FloatToBFloat16(std::bit_cast<float>((i << 16) | tail));
    };
    ASSERT_EQ(with_tail(0x7FFF), h) << i;
    ASSERT_EQ(with_tail(0x8000), i + (i & 1)) << i;
    ASSERT_EQ(with_tail(0x8001), i + 1) << i;
  }
  // A NaN whose payload lies in the lost bits stays a NaN.
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x7F800001U)), 0x7FC0);
}

}  // namespace
}  // namespace longspec
