// SPDX-License-Identifier: Apache-2.0
//
// Weights of each type are within a step of what was encoded.
#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/counter_rng.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

struct TypeCase {
  DType dtype;
  float max_error;  // of values in [-1, 1], worst case by the type's number of codes
};

std::string CaseName(const ::testing::TestParamInfo<TypeCase>& info) {
  return std::string(Info(info.param.dtype).name);
}

// Random values in [low, high].
std::vector<float> Values(uint64_t seed, float low, float high) {
  const RngStream rng{seed, 0, RngPurpose::kTest};
  std::vector<float> values(512);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = low + (high - low) * static_cast<float>(rng.Uniform(i));
  }
  return values;
}

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> stored(RowBytes(dtype, n));
  QuantizeRow(dtype, values.data(), n, stored.data());
  std::vector<float> decoded(values.size());
  DequantizeRow(dtype, stored.data(), n, decoded.data());
  return decoded;
}

float MaxError(const std::vector<float>& a, const std::vector<float>& b) {
  float error = 0;
  for (size_t i = 0; i < a.size(); ++i) error = std::max(error, std::abs(a[i] - b[i]));
  return error;
}

class QuantizeTest : public ::testing::TestWithParam<TypeCase> {};

TEST_P(QuantizeTest, ErrorIsBoundedByTheStep) {
  const auto [dtype, max_error] = GetParam();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> values = Values(seed, -1, 1);
    EXPECT_LE(MaxError(values, RoundTrip(dtype, values)), max_error) << seed;
  }
}

TEST_P(QuantizeTest, ValuesOfOneSignStayWithinTheBound) {
  const auto [dtype, max_error] = GetParam();
  for (const std::vector<float>& values : {Values(1, 0, 1), Values(2, -1, 0), Values(3, 0.9F, 1)}) {
    EXPECT_LE(MaxError(values, RoundTrip(dtype, values)), max_error);
  }
}

TEST_P(QuantizeTest, ZerosStayZero) {
  const std::vector<float> zeros(512, 0.0F);
  EXPECT_EQ(MaxError(zeros, RoundTrip(GetParam().dtype, zeros)), 0.0F);
}

TEST_P(QuantizeTest, WritesExactlyTheRow) {
  const DType dtype = GetParam().dtype;
  const std::vector<float> values = Values(5, -1, 1);
  std::vector<std::byte> stored(RowBytes(dtype, 512) + 2, std::byte{0xAB});
  QuantizeRow(dtype, values.data(), 512, stored.data() + 1);
  EXPECT_EQ(stored.front(), std::byte{0xAB});
  EXPECT_EQ(stored.back(), std::byte{0xAB});
}

// Half a step of the type's range, plus what an 11-bit scale (and a 6 or 8-bit sub-scale) may be off by over
// the range. A symmetric type gives up to a whole step at the end it does not reach.
INSTANTIATE_TEST_SUITE_P(Types, QuantizeTest,
                         ::testing::Values(TypeCase{DType::kF32, 0.0F}, TypeCase{DType::kF16, 0x1.0p-12F},
                                           TypeCase{DType::kBF16, 0x1.0p-9F}, TypeCase{DType::kQ4_0, 0.126F},
                                           TypeCase{DType::kQ4_1, 0.068F}, TypeCase{DType::kQ5_0, 0.0635F},
                                           TypeCase{DType::kQ5_1, 0.034F}, TypeCase{DType::kQ8_0, 0.0045F},
                                           TypeCase{DType::kIQ4_NL, 0.12F}, TypeCase{DType::kQ3_K, 0.27F},
                                           TypeCase{DType::kQ4_K, 0.1F}, TypeCase{DType::kQ5_K, 0.06F},
                                           TypeCase{DType::kQ6_K, 0.036F}, TypeCase{DType::kIQ4_XS, 0.14F},
                                           TypeCase{DType::kMXFP4, 0.126F}),
                         CaseName);

TEST(QuantizeTest, TheLargestValueOfASymmetricBlockIsExact) {
  std::vector<float> values(32, 0.25F);
  values[7] = -4.0F;
  for (const DType dtype : {DType::kQ4_0, DType::kQ5_0}) EXPECT_EQ(RoundTrip(dtype, values)[7], -4.0F);
  values[7] = 4.0F;
  for (const DType dtype : {DType::kQ4_0, DType::kQ5_0}) EXPECT_EQ(RoundTrip(dtype, values)[7], 4.0F);
}

TEST(QuantizeTest, ValuesOnTheGridAreExact) {
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i - 16) * 0.5F;
  EXPECT_EQ(RoundTrip(DType::kQ5_0, values), values);
  EXPECT_EQ(RoundTrip(DType::kQ5_1, values), values);
}

TEST(QuantizeTest, NumbersOfE2M1AreExact) {
  for (const float scale : {1.0F, 0x1.0p-10F, 0x1.0p-127F, 0x1.0p124F}) {
    std::vector<float> values(32);
    constexpr float kMagnitudes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    for (size_t i = 0; i < 32; ++i) values[i] = scale * (i % 16 < 8 ? 1.0F : -1.0F) * kMagnitudes[i % 8];
    EXPECT_EQ(RoundTrip(DType::kMXFP4, values), values) << scale;
  }
}

// What comes of them is open, but their neighbours' blocks are what they were, and no cast sees them.
TEST(QuantizeTest, NumbersThatAreNotFiniteAreMet) {
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4,
        DType::kQ3_K, DType::kIQ4_XS, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const auto n = static_cast<size_t>(Info(dtype).block_elements);
    const auto bytes = RowBytes(dtype, static_cast<int64_t>(n));
    std::vector<float> row(2 * n, 0.25F);
    std::vector<std::byte> right(2 * bytes), stored(2 * bytes);
    QuantizeRow(dtype, row.data(), static_cast<int64_t>(2 * n), right.data());
    for (const float wrong : {std::nanf(""), INFINITY, -INFINITY}) {
      for (const size_t at : {size_t{0}, size_t{17}, n - 1}) {
        std::vector<float> broken = row;
        broken[at] = wrong;
        QuantizeRow(dtype, broken.data(), static_cast<int64_t>(2 * n), stored.data());
        EXPECT_TRUE(std::equal(stored.begin() + static_cast<ptrdiff_t>(bytes), stored.end(),
                               right.begin() + static_cast<ptrdiff_t>(bytes)))
            << Info(dtype).name;
      }
    }
  }
}

TEST(QuantizeDeathTest, WrongUseIsABug) {
  float in[32] = {};
  std::byte out[64];
  EXPECT_DEATH(QuantizeRow(DType::kQ4_0, in, 31, out), "");
  EXPECT_DEATH(QuantizeRow(DType::kI32, in, 1, out), "");
}

}  // namespace
}  // namespace longspec
