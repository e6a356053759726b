// SPDX-License-Identifier: Apache-2.0
//
// Compares with what the Python package `gguf` decodes (testdata/dequantize.bin,
// tools/make_dequantize_fixture.py).
#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "base/testing/source_path.h"
#include "tensor/scale_min.h"

namespace longspec {
namespace {

struct Record {
  DType dtype;
  std::vector<std::byte> blocks;
  std::vector<float> expected;
};

std::vector<Record> ReadFixture() {
  std::ifstream in(testing::SourcePath("src/tensor/testdata/dequantize.bin"), std::ios::binary);
  std::vector<Record> records;
  char name[9] = {};
  uint32_t n = 0;
  while (in.read(name, 8) && in.read(reinterpret_cast<char*>(&n), sizeof n)) {
    Record record{FindDType(name).value(), {}, std::vector<float>(n)};
    record.blocks.resize(RowBytes(record.dtype, n));
    in.read(reinterpret_cast<char*>(record.blocks.data()),
            static_cast<std::streamsize>(record.blocks.size()));
    in.read(reinterpret_cast<char*>(record.expected.data()), static_cast<std::streamsize>(n * sizeof(float)));
    records.push_back(std::move(record));
  }
  return records;
}

TEST(DequantizeTest, HasTheBitsOfTheFixture) {
  const std::vector<Record> records = ReadFixture();
  std::set<DType> seen;
  for (const Record& record : records) {
    seen.insert(record.dtype);
    ASSERT_TRUE(CanDequantize(record.dtype));
    std::vector<float> decoded(record.expected.size());
    DequantizeRow(record.dtype, record.blocks.data(), static_cast<int64_t>(decoded.size()), decoded.data());
    for (size_t i = 0; i < decoded.size(); ++i) {
      ASSERT_EQ(std::memcmp(&decoded[i], &record.expected[i], sizeof(float)), 0)
          << Info(record.dtype).name << " element " << i << ": " << decoded[i] << ", expected "
          << record.expected[i];
    }
  }
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(seen.contains(dtype), CanDequantize(dtype) && dtype != DType::kF32) << Info(dtype).name;
  }
}

TEST(DequantizeTest, ReadsFromAnyAlignment) {
  for (const Record& record : ReadFixture()) {
    std::vector<std::byte> shifted(record.blocks.size() + 1);
    std::memcpy(shifted.data() + 1, record.blocks.data(), record.blocks.size());
    std::vector<float> decoded(record.expected.size());
    DequantizeRow(record.dtype, shifted.data() + 1, static_cast<int64_t>(decoded.size()), decoded.data());
    EXPECT_EQ(std::memcmp(decoded.data(), record.expected.data(), decoded.size() * sizeof(float)), 0);
  }
}

TEST(DequantizeTest, FloatsAreCopied) {
  const std::vector<float> src = {1.5F, -0.0F, 3e-41F};
  std::vector<float> dst(3);
  DequantizeRow(DType::kF32, reinterpret_cast<const std::byte*>(src.data()), 3, dst.data());
  EXPECT_EQ(std::memcmp(src.data(), dst.data(), sizeof(float) * 3), 0);
}

TEST(DequantizeTest, IntegerTypesAndDoublesAreNotOffered) {
  for (const DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kF64}) {
    EXPECT_FALSE(CanDequantize(dtype)) << Info(dtype).name;
  }
  EXPECT_TRUE(CanDequantize(DType::kF32));
}

TEST(DequantizeTest, AnEmptyRowNeedsNoMemory) { DequantizeRow(DType::kQ4_1, nullptr, 0, nullptr); }

TEST(DequantizeDeathTest, WrongUseIsABug) {
  float out[32];
  const std::byte in[64] = {};
  EXPECT_DEATH(DequantizeRow(DType::kQ4_0, in, 31, out), "");
  EXPECT_DEATH(DequantizeRow(DType::kI32, in, 1, out), "");
}

TEST(ScaleMinTest, ScalesSurvivePacking) {
  for (int shift = 0; shift < 64; ++shift) {
    ScaleMin pairs[8];
    for (int s = 0; s < 8; ++s) pairs[s] = {(shift + 9 * s) & 63, (63 - shift + 13 * s) & 63};
    uint8_t packed[12];
    PackScaleMins(pairs, packed);
    for (int s = 0; s < 8; ++s) {
      const ScaleMin unpacked = UnpackScaleMin(packed, s);
      EXPECT_EQ(unpacked.scale, pairs[s].scale) << s;
      EXPECT_EQ(unpacked.min, pairs[s].min) << s;
    }
  }
}

TEST(DTypeTest, NamesAreFoundInAnyCase) {
  EXPECT_EQ(FindDType("Q4_K"), DType::kQ4_K);
  EXPECT_EQ(FindDType("bf16"), DType::kBF16);
  EXPECT_EQ(FindDType("F64"), DType::kF64);
  EXPECT_EQ(FindDType("Q4"), std::nullopt);
  EXPECT_EQ(FindDType(""), std::nullopt);
}

TEST(DTypeTest, RowBytesCountsBlocks) {
  EXPECT_EQ(RowBytes(DType::kQ4_1, 576), 360U);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 512), 420U);
  EXPECT_EQ(RowBytes(DType::kF32, 0), 0U);
  EXPECT_DEATH((void)RowBytes(DType::kQ8_0, 33), "");
}

}  // namespace
}  // namespace longspec
