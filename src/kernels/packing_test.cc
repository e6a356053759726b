// SPDX-License-Identifier: Apache-2.0
//
// Packed weights against the stored blocks they came from, decoded here a second time straight from the
// format.
#include "kernels/packing.h"

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/same_bits.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"
#include "tensor/weight_lines.h"

namespace longspec::kernels {
namespace {

using testing::Random;
using testing::SameBits;

uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

int ByteAt(const std::byte* p, int i) { return std::to_integer<int>(p[i]); }

// value = d * w + m
struct Decoded {
  float d = 0, m = 0;
  int w[32] = {};
};

Decoded DecodeBlock(DType dtype, const std::byte* p) {
  Decoded out;
  out.d = dtype == DType::kMXFP4 ? std::ldexp(1.0F, ByteAt(p, 0) - 128) : HalfToFloat(LoadU16(p));
  const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1;
  if (has_min) out.m = HalfToFloat(LoadU16(p + 2));
  const std::byte* rest = p + (has_min ? 4 : dtype == DType::kMXFP4 ? 1 : 2);
  for (int i = 0; i < 32; ++i) {
    switch (dtype) {
      case DType::kQ8_0:
        out.w[i] = static_cast<int8_t>(ByteAt(rest, i));
        break;
      case DType::kQ4_0:
        out.w[i] = (ByteAt(rest, i % 16) >> (i < 16 ? 0 : 4) & 15) - 8;
        break;
      case DType::kQ4_1:
        out.w[i] = ByteAt(rest, i % 16) >> (i < 16 ? 0 : 4) & 15;
        break;
      case DType::kIQ4_NL: {
        constexpr int kSteps[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
        out.w[i] = kSteps[ByteAt(rest, i % 16) >> (i < 16 ? 0 : 4) & 15];
        break;
      }
      case DType::kMXFP4: {
        constexpr int kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        out.w[i] = kTwice[ByteAt(rest, i % 16) >> (i < 16 ? 0 : 4) & 15];
        break;
      }
      default: {
        const int high = ByteAt(rest, i / 8) >> (i % 8) & 1;
        out.w[i] = (ByteAt(rest + 4, i % 16) >> (i < 16 ? 0 : 4) & 15) + 16 * high;
        if (dtype == DType::kQ5_0) out.w[i] -= 16;
      }
    }
  }
  return out;
}

// A stored matrix of random blocks with harmless scales.
struct Stored {
  Stored(DType dtype, int64_t n_in, int64_t n_out) {
    Random random(60);
    bytes.resize(static_cast<size_t>(n_out) * RowBytes(dtype, n_in));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.Bits() & 0xFF);
    const auto step = static_cast<size_t>(Info(dtype).block_bytes);
    for (size_t at = 0; at < bytes.size(); at += step) FixFloats(dtype, at, random);
    view = {.name = "w",
            .dtype = dtype,
            .n_dims = 2,
            .shape = {n_in, n_out, 1, 1},
            .data = bytes.data(),
            .n_bytes = bytes.size()};
  }

  void PutHalf(size_t at, Random& random) {
    const uint16_t h = FloatToHalf(random.Float(0.1F));
    std::memcpy(bytes.data() + at, &h, sizeof(h));
  }

  // The floats of the block at `at` become ordinary numbers.
  void FixFloats(DType dtype, size_t at, Random& random) {
    const float f = random.Float();
    const uint16_t bf16 = FloatToBFloat16(f);
    switch (dtype) {
      case DType::kF32:
        std::memcpy(bytes.data() + at, &f, sizeof(f));
        break;
      case DType::kBF16:
        std::memcpy(bytes.data() + at, &bf16, sizeof(bf16));
        break;
      case DType::kMXFP4:
        bytes[at] = static_cast<std::byte>(118 + random.Below(8));
        break;
      case DType::kQ3_K:
        PutHalf(at + 108, random);
        break;
      case DType::kQ6_K:
        PutHalf(at + 208, random);
        break;
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4_K:
      case DType::kQ5_K:
        PutHalf(at + 2, random);
        [[fallthrough]];
      default:
        PutHalf(at, random);
        break;
    }
  }

  std::vector<std::byte> bytes;
  TensorView view;
};

PackedWeights PackAll(const TensorView& view) {
  PackedWeights packed(view);
  packed.Pack(view, 0, packed.n_groups());
  return packed;
}

constexpr int64_t kPackedRows = 3;

std::vector<float> PackedProductQ8(const PackedWeights& packed, const std::vector<Q8Block>& x) {
  std::vector<float> y(static_cast<size_t>(kPackedRows * packed.matrix().n_out));
  kReferenceTable.matmul_q8({.w = &packed.matrix(),
                             .x = x.data(),
                             .y = y.data(),
                             .y_stride = packed.matrix().n_out,
                             .n_rows = kPackedRows,
                             .group_begin = 0,
                             .group_end = packed.n_groups()});
  return y;
}

std::vector<float> PackedProductFloat(const PackedWeights& packed, const std::vector<float>& x) {
  std::vector<float> y(static_cast<size_t>(kPackedRows * packed.matrix().n_out));
  kReferenceTable.matmul_float({.w = &packed.matrix(),
                                .x = x.data(),
                                .x_stride = packed.matrix().n_in,
                                .y = y.data(),
                                .y_stride = packed.matrix().n_out,
                                .n_rows = kPackedRows,
                                .group_begin = 0,
                                .group_end = packed.n_groups()});
  return y;
}

// The q8 arithmetic from the stored blocks themselves.
std::vector<float> NaiveQ8(const TensorView& view, const std::vector<Q8Block>& x) {
  const int64_t n_block = view.shape[0] / 32;
  std::vector<float> y;
  for (int64_t row = 0; row < kPackedRows; ++row) {
    for (int64_t o = 0; o < view.n_rows(); ++o) {
      float acc = 0.0F;
      for (int64_t b = 0; b < n_block; ++b) {
        const Decoded w = DecodeBlock(view.dtype, view.row(o) + b * Info(view.dtype).block_bytes);
        const Q8Block& block = x[static_cast<size_t>(row * n_block + b)];
        int dot[2] = {};
        for (int i = 0; i < 32; ++i) dot[i / 16] += w.w[i] * block.q[i];
        const float sum =
            std::fma(static_cast<float>(dot[1]), block.d[1], static_cast<float>(dot[0]) * block.d[0]);
        acc = std::fma(w.d, sum, acc);
        if (view.dtype == DType::kQ4_1 || view.dtype == DType::kQ5_1) acc = std::fma(w.m, block.s, acc);
      }
      y.push_back(acc);
    }
  }
  return y;
}

// The f32 arithmetic from rows of floats.
std::vector<float> NaiveFloat(const std::vector<float>& w, int64_t n_in, const std::vector<float>& x) {
  std::vector<float> y;
  const auto n = static_cast<size_t>(n_in);
  for (size_t row = 0; row < kPackedRows; ++row) {
    for (size_t o = 0; o < w.size() / n; ++o) {
      float acc = 0.0F;
      for (size_t k = 0; k < n; ++k) acc = std::fma(w[o * n + k], x[row * n + k], acc);
      y.push_back(acc);
    }
  }
  return y;
}

class PackingTest : public ::testing::TestWithParam<DType> {};

std::string DTypeTestName(const ::testing::TestParamInfo<DType>& info) {
  return std::string(Info(info.param).name);
}

using QuantizedPackingTest = PackingTest;
INSTANTIATE_TEST_SUITE_P(Types, QuantizedPackingTest,
                         ::testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                           DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4),
                         DTypeTestName);

TEST_P(QuantizedPackingTest, ProductIsTheStoredMatrixs) {
  for (const int64_t n_out : {16, 41}) {
    for (const int64_t n_in : {32, 160}) {
      const Stored stored(GetParam(), n_in, n_out);
      const PackedWeights packed = PackAll(stored.view);
      EXPECT_TRUE(IsQuantized(packed.matrix().format));
      EXPECT_STREQ(ArithmeticName(packed.matrix().format), "q8");
      const std::vector<Q8Block> x = testing::TestActivations(kPackedRows, n_in, testing::Fill::kRandom, 61);
      EXPECT_TRUE(SameBits(NaiveQ8(stored.view, x), PackedProductQ8(packed, x))) << n_out << " x " << n_in;
    }
  }
}

// The naive product above and the decoder of tensor/ agree on what a block means.
TEST_P(QuantizedPackingTest, DecodesAsTheTensorModule) {
  if (!CanDequantize(GetParam())) GTEST_SKIP() << "no decoder for this type";
  const Stored stored(GetParam(), 32, 50);
  for (int64_t o = 0; o < 50; ++o) {
    const Decoded block = DecodeBlock(GetParam(), stored.view.row(o));
    float values[32];
    DequantizeRow(GetParam(), stored.view.row(o), 32, values);
    for (int i = 0; i < 32; ++i) {
      const float product = block.d * static_cast<float>(block.w[i]);
      EXPECT_NEAR(values[i], product + block.m, 1e-6);
    }
  }
}

TEST_P(QuantizedPackingTest, GroupsMayBePackedInAnyOrder) {
  const Stored stored(GetParam(), 64, 40);
  const PackedWeights whole = PackAll(stored.view);
  PackedWeights parts(stored.view);
  parts.Pack(stored.view, 2, 3);
  parts.Pack(stored.view, 0, 2);
  const size_t bytes = PackedBytes(GetParam(), 64, 40);
  EXPECT_EQ(std::memcmp(whole.matrix().data, parts.matrix().data, bytes), 0);
}

using SuperPackingTest = PackingTest;
INSTANTIATE_TEST_SUITE_P(Types, SuperPackingTest,
                         ::testing::Values(DType::kQ3_K, DType::kIQ4_XS, DType::kQ4_K, DType::kQ5_K,
                                           DType::kQ6_K),
                         DTypeTestName);

// A row of x with a single 1 picks one weight, (D * factor) * w - M * factor with one rounding: what the
// decoder of tensor/ gives.
TEST_P(SuperPackingTest, EveryWeightIsTheDecoders) {
  constexpr int64_t kIn = 512, kOut = 41;
  const Stored stored(GetParam(), kIn, kOut);
  const PackedWeights packed = PackAll(stored.view);
  EXPECT_STREQ(ArithmeticName(packed.matrix().format), "q8k");
  std::vector<float> expected(kOut * kIn), actual(kIn * kOut), transposed;
  for (int64_t o = 0; o < kOut; ++o) {
    DequantizeRow(GetParam(), stored.view.row(o), kIn, expected.data() + o * kIn);
  }
  std::vector<Q8KBlock> x(kIn * kIn / kSuperBlock);
  for (size_t k = 0; k < kIn; ++k) {
    Q8KBlock& block = x[k * (kIn / kSuperBlock) + k / kSuperBlock];
    block.q[k % kSuperBlock] = 1;
    block.d = 1.0F;
    block.steps[k % kSuperBlock / kQuantBlock] = 1;
    testing::SetSums(block);
  }
  kReferenceTable.matmul_q8k({.w = &packed.matrix(),
                              .x = x.data(),
                              .y = actual.data(),
                              .y_stride = kOut,
                              .n_rows = kIn,
                              .group_begin = 0,
                              .group_end = packed.n_groups()});
  for (size_t o = 0; o < kOut; ++o) {
    for (size_t k = 0; k < kIn; ++k) transposed.push_back(actual[k * kOut + o] + 0.0F);  // -0 is +0 here
  }
  for (float& value : expected) value += 0.0F;
  EXPECT_TRUE(SameBits(expected, transposed));
}

TEST_P(SuperPackingTest, GroupsMayBePackedInAnyOrder) {
  const Stored stored(GetParam(), 256, 40);
  const PackedWeights whole = PackAll(stored.view);
  PackedWeights parts(stored.view);
  parts.Pack(stored.view, 2, 3);
  parts.Pack(stored.view, 0, 2);
  EXPECT_EQ(std::memcmp(whole.matrix().data, parts.matrix().data, PackedBytes(GetParam(), 256, 40)), 0);
}

using FloatPackingTest = PackingTest;
INSTANTIATE_TEST_SUITE_P(Types, FloatPackingTest, ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         DTypeTestName);

bool Is16Bit(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// The values of a stored matrix, row after row.
std::vector<float> Rows(const TensorView& view) {
  std::vector<float> w(static_cast<size_t>(view.n_elements()));
  if (!Is16Bit(view.dtype)) {
    for (int64_t o = 0; o < view.n_rows(); ++o) {
      DequantizeRow(view.dtype, view.row(o), view.shape[0], w.data() + o * view.shape[0]);
    }
    return w;
  }
  for (size_t i = 0; i < w.size(); ++i) {
    const uint16_t h = LoadU16(view.data + i * 2);
    w[i] = view.dtype == DType::kF16 ? HalfToFloat(h) : BFloat16ToFloat(h);
  }
  return w;
}

TEST_P(FloatPackingTest, ProductIsTheStoredMatrixs) {
  const int64_t n_in = 45;
  for (const int64_t n_out : {1, 16, 37}) {
    const Stored stored(GetParam(), n_in, n_out);
    const std::vector<float> w = Rows(stored.view);
    const PackedWeights packed = PackAll(stored.view);
    EXPECT_STREQ(ArithmeticName(packed.matrix().format), "f32");
    const std::vector<float> x = Random(62).Floats(static_cast<size_t>(kPackedRows * n_in));
    EXPECT_TRUE(SameBits(NaiveFloat(w, n_in, x), PackedProductFloat(packed, x))) << n_out;
  }
}

TEST(PackedFormatTest, KeepsIntegersWhereItCan) {
  EXPECT_EQ(PackedFormat(DType::kQ4_0), WeightFormat::kU4);
  EXPECT_EQ(PackedFormat(DType::kQ4_1), WeightFormat::kU4Min);
  EXPECT_EQ(PackedFormat(DType::kQ5_0), WeightFormat::kU5);
  EXPECT_EQ(PackedFormat(DType::kQ5_1), WeightFormat::kU5Min);
  EXPECT_EQ(PackedFormat(DType::kQ8_0), WeightFormat::kS8);
  EXPECT_EQ(PackedFormat(DType::kIQ4_NL), WeightFormat::kU4Iq);
  EXPECT_EQ(PackedFormat(DType::kMXFP4), WeightFormat::kU4Fp);
  EXPECT_EQ(PackedFormat(DType::kQ3_K), WeightFormat::kSuperU3Halves);
  EXPECT_EQ(PackedFormat(DType::kIQ4_XS), WeightFormat::kSuperU4Iq);
  EXPECT_EQ(PackedFormat(DType::kQ4_K), WeightFormat::kSuperU4Min);
  EXPECT_EQ(PackedFormat(DType::kQ5_K), WeightFormat::kSuperU5Min);
  EXPECT_EQ(PackedFormat(DType::kQ6_K), WeightFormat::kSuperU6Halves);
  EXPECT_EQ(PackedFormat(DType::kF16), WeightFormat::kF16);
  EXPECT_EQ(PackedFormat(DType::kBF16), WeightFormat::kBF16);
}

TEST(PackedFormatTest, BytesAreWhatIsAllocated) {
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kF16, DType::kBF16}) {
    const Stored stored(dtype, 96, 37);
    const PackedWeights packed(stored.view);
    EXPECT_EQ(packed.n_groups(), 3);
    EXPECT_EQ(packed.matrix().group_bytes % 64, 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.matrix().data) % 64, 0U);
    EXPECT_EQ(PackedBytes(dtype, 96, 37), 3 * packed.matrix().group_bytes);
  }
}

// A step of one row reads all weights: no type takes more than its file's bytes, but for factors of six bits
// there and a byte here.
TEST(PackedFormatTest, NoWeightIsWiderThanInItsFile) {
  const std::map<DType, double> bits = {
      {DType::kF32, 32},     {DType::kF16, 16},     {DType::kBF16, 16},       {DType::kQ4_0, 4.5},
      {DType::kQ4_1, 5},     {DType::kQ5_0, 5.5},   {DType::kQ5_1, 6},        {DType::kQ8_0, 8.5},
      {DType::kQ4_K, 4.625}, {DType::kQ5_K, 5.625}, {DType::kQ6_K, 6.5625},   {DType::kQ3_K, 3.5625},
      {DType::kIQ4_NL, 4.5}, {DType::kMXFP4, 4.25}, {DType::kIQ4_XS, 4.3125},
  };
  for (const auto& [dtype, of_weight] : bits) {
    for (const int64_t n_in : {1536, 2048, 14336}) {
      const auto packed = static_cast<double>(PackedBytes(dtype, n_in, 48));
      const auto stored = static_cast<double>(RowBytes(dtype, n_in) * 48);
      EXPECT_EQ(packed, static_cast<double>(n_in) * 48 * of_weight / 8) << Info(dtype).name;
      EXPECT_LE(packed, stored * 1.04) << Info(dtype).name;
    }
  }
}

// The bits of a block's bytes are each the bit of one weight.
TEST(PackedFormatTest, LinesShareAllBits) {
  for (const int bits : {3, 4, 5, 6, 8}) {
    int bytes[8] = {};
    for (const WeightLine& line : kWeightLines[bits].of) {
      int of_weight = 0;
      for (int p = 0; p < line.n_parts; ++p) {
        const LinePart& part = line.parts[p];
        ASSERT_LT(part.line, bits);
        const int mask = (1 << part.n) - 1;
        EXPECT_EQ(bytes[part.line] & mask << part.from, 0);
        EXPECT_EQ(of_weight & mask << part.to, 0);
        bytes[part.line] |= mask << part.from;
        of_weight |= mask << part.to;
      }
      EXPECT_EQ(of_weight, (1 << bits) - 1);
    }
    for (int line = 0; line < bits; ++line) EXPECT_EQ(bytes[line], 255) << bits;
  }
}

// Lanes beyond the last row are zero, so that a kernel may compute them without meeting a NaN.
TEST(PackedFormatTest, PaddingIsZero) {
  const Stored stored(DType::kF16, 3, 17);
  const PackedWeights packed = PackAll(stored.view);
  const std::byte* last = packed.matrix().data + packed.matrix().group_bytes;
  for (size_t k = 0; k < 3; ++k) {
    for (size_t lane = 1; lane < 16; ++lane) EXPECT_EQ(LoadU16(last + (k * 16 + lane) * 2), 0);
  }
}

// Packed weights are kept on disk. Who changes what Pack writes changes kPackedLayoutVersion, and then the
// hashes here.
TEST(Packing, TheLayoutIsThatOfItsVersion) {
  const std::map<DType, std::string> hashes = {
      {DType::kF32, "ae241f796106ca0697e8af282a9257e0"},
      {DType::kF16, "b576d3dd4f124be0a422a0096639e18d"},
      {DType::kBF16, "4d1c5f93fa17f59c638b7f07cb9c5c85"},
      {DType::kQ4_0, "ef5198b7febe481b6b75307f4c866c85"},
      {DType::kQ4_1, "c006b8d1d4bbb0a024a0241a7a670ac2"},
      {DType::kQ5_0, "dcf031e8bbd3906cf8bec6fc76111b3f"},
      {DType::kQ5_1, "0fb03e2d85607cb1601021cafd059eed"},
      {DType::kQ8_0, "8cc8837ded6b4278131dcf01cbde56c6"},
      {DType::kQ4_K, "8b227b1e23eafef71371b65aa59c363a"},
      {DType::kQ5_K, "37c55befeb3d985528385c0c27396f97"},
      {DType::kQ6_K, "32569c02821356e25950eed30a6ee7fc"},
      {DType::kIQ4_NL, "ef5198b7febe481b6b75307f4c866c85"},
      {DType::kMXFP4, "2fe430136c4dad0d3ca55791721be874"},
      {DType::kQ3_K, "842353bad31a20dd092475f138052479"},
      {DType::kIQ4_XS, "9992ee6eba83f02ab99c658912be3364"},
  };
  ASSERT_EQ(kPackedLayoutVersion, 4U);
  for (const auto& [dtype, hash] : hashes) {
    const Stored stored(dtype, 512, 37);
    const PackedWeights packed = PackAll(stored.view);
    const std::span bytes(packed.matrix().data, PackedBytes(dtype, 512, 37));
    EXPECT_EQ(ToHex(HashOf(bytes)), hash) << Info(dtype).name;
  }
}

// Whatever the layout, products of stored types keep their bits.
TEST(Packing, ProductsAreWhatTheyWere) {
  const std::map<DType, std::string> hashes = {
      {DType::kQ4_0, "4f6e8f374cfb1fb81eff81c01d99f3d1"},
      {DType::kQ4_1, "080eb287e54422e2a5c9347ac21d8eb3"},
      {DType::kQ5_0, "2a34003b40b83e072b24ed8e9217aa54"},
      {DType::kQ5_1, "b57c197d218dad281d63f4aa1cd6b52b"},
      {DType::kQ8_0, "f0a572d662c8db4318f99710fbfd02cf"},
      {DType::kQ4_K, "c30c950fa126d4a10102a593013fa3dd"},
      {DType::kQ5_K, "36aef7a925db5450fedd9ed792e67ce9"},
      {DType::kQ6_K, "a417778481a923c47175637037e1ed15"},
      {DType::kIQ4_NL, "458cd8be2ee3317a5b26375b015a741a"},
      {DType::kMXFP4, "51487ff6b5e721c445f77868759f9f7a"},
      {DType::kQ3_K, "6713ad93a2b243938d97c8170277098d"},
      {DType::kIQ4_XS, "775a856b4665b7561556a1795bcb2cfd"},
  };
  constexpr int64_t kIn = 512, kOut = 37;
  for (const auto& [dtype, hash] : hashes) {
    const Stored stored(dtype, kIn, kOut);
    const PackedWeights packed = PackAll(stored.view);
    std::vector<float> y(kPackedRows * kOut);
    const auto of = [&](auto args) {
      args.w = &packed.matrix();
      args.y = y.data();
      args.y_stride = kOut;
      args.n_rows = kPackedRows;
      args.group_end = packed.n_groups();
      return args;
    };
    if (HasSuperBlocks(packed.matrix().format)) {
      const auto x = testing::TestActivationsQ8K(kPackedRows, kIn, testing::Fill::kRandom, 63);
      kReferenceTable.matmul_q8k(of(MatmulQ8KArgs{.x = x.data()}));
    } else {
      const auto x = testing::TestActivations(kPackedRows, kIn, testing::Fill::kRandom, 63);
      kReferenceTable.matmul_q8(of(MatmulQ8Args{.x = x.data()}));
    }
    EXPECT_EQ(ToHex(HashOf(std::as_bytes(std::span(y)))), hash) << Info(dtype).name;
  }
}

TEST(Packing, WhatWasPackedNeedsNoPacking) {
  const Stored stored(DType::kQ4_1, 64, 37);
  const PackedWeights packed = PackAll(stored.view);
  const PackedWeights again = PackedWeights::Packed(stored.view, packed.matrix().data);
  EXPECT_EQ(again.matrix().data, packed.matrix().data);
  EXPECT_EQ(again.matrix().group_bytes, packed.matrix().group_bytes);
  EXPECT_EQ(again.matrix().format, packed.matrix().format);
  EXPECT_EQ(again.matrix().n_in, 64);
  EXPECT_EQ(again.matrix().n_out, 37);
  EXPECT_EQ(again.n_groups(), packed.n_groups());
}

}  // namespace
}  // namespace longspec::kernels
