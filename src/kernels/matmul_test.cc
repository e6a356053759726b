// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of every table against the reference.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/testing/floats.h"
#include "kernels/packing.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/matmul_checks.h"
#include "kernels/testing/row_dependent_table.h"
#include "kernels/testing/same_bits.h"
#include "kernels/testing/tables_under_test.h"

namespace longspec::kernels::testing {
namespace {

using longspec::testing::kInfinity;
using MatmulTest = TableTest;
LONGSPEC_FOR_EVERY_TABLE(MatmulTest);

TEST_P(MatmulTest, EveryFormatAndRowCountIsTheReferences) {
  for (const WeightFormat format : kAllFormats) {
    for (const int n_rows : kRowCounts) {
      for (const int64_t n_out : {1, 16, 40, 87}) {
        const int n_groups = static_cast<int>((n_out + 15) / 16);
        ASSERT_TRUE(MatmulSameAsReference(
            table(), {.format = format, .n_in = 96, .n_out = n_out, .n_rows = n_rows}, 0, n_groups));
      }
    }
  }
}

// Inputs as wide as one block and as many, for each format of weights, with a number of outputs that fills
// no group.
TEST_P(MatmulTest, EveryDepth) {
  for (const WeightFormat format : kAllFormats) {
    for (const int64_t n_in : {32, 64, 160, 576, 608, 1536}) {
      for (const int n_rows : {1, 2, 5, 8}) {
        ASSERT_TRUE(MatmulSameAsReference(
            table(), {.format = format, .n_in = n_in, .n_out = 33, .n_rows = n_rows}, 0, 3));
      }
    }
  }
}

// On both sides of every tile, of the rows whose sums are kept and of the super-blocks that tiles share.
TEST_P(MatmulTest, EveryRowCountAndDepthOfSuperBlocks) {
  for (const WeightFormat format : kSuperFormats) {
    for (int n_rows = 1; n_rows <= 20; ++n_rows) {
      ASSERT_TRUE(MatmulSameAsReference(
          table(), {.format = format, .n_in = 1280, .n_out = 21, .n_rows = n_rows}, 0, 2));
    }
    for (const int n_rows : {127, 128, 129, 134}) {
      ASSERT_TRUE(MatmulSameAsReference(
          table(), {.format = format, .n_in = 256, .n_out = 16, .n_rows = n_rows}, 0, 1));
    }
    for (const int64_t n_in : {256, 512, 1024, 2048, 2304}) {
      for (const int n_rows : {1, 4, 5, 6, 9}) {
        ASSERT_TRUE(MatmulSameAsReference(
            table(), {.format = format, .n_in = n_in, .n_out = 33, .n_rows = n_rows}, 0, 3));
      }
    }
  }
}

// Whether sums of products fit 16 bits, of all rows of a tile, of some or of none.
TEST_P(MatmulTest, SmallActivationsOfSuperBlocks) {
  for (const WeightFormat format : kSuperFormats) {
    for (const int n_rows : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
      ASSERT_TRUE(MatmulSameAsReference(
          table(), {.format = format, .n_in = 1792, .n_out = 33, .n_rows = n_rows, .fill = Fill::kSmall}, 0,
          3));
    }
  }
}

// Sums of products of all sizes about the end of 16 bits.
TEST_P(MatmulTest, SumsOfSuperBlocksAtTheEndOf16Bits) {
  constexpr int kIn = 256, kOut = 16, kRows = 8;
  for (const WeightFormat format : kSuperFormats) {
    const TestMatrix weights(format, kIn, kOut, Fill::kLargest, 1);
    // 15 * 2184, 31 * 1057 and 32 * 1023 are the last that fit.
    for (const int last : {2184, 1057, 1023}) {
      for (const int sign : {1, -1}) {
        std::vector<Q8KBlock> x(kRows);
        for (size_t row = 0; row < kRows; ++row) {
          x[row].d = 1.0F;
          for (uint8_t& steps : x[row].steps) steps = kMostSteps;
          for (size_t b = 0; b < 8; ++b) {
            int left = last + static_cast<int>(b) - 4;
            for (size_t i = 0; i < kQuantBlock; ++i) {
              const int q = std::min(left, 127);
              x[row].q[kQuantBlock * b + i] = static_cast<int8_t>(sign * q);
              left -= q;
            }
          }
          SetSums(x[row]);
        }
        std::vector<float> results[2];
        for (int i = 0; i < 2; ++i) {
          results[i].resize(size_t{kRows} * kOut);
          (i == 0 ? kReferenceTable : table())
              .matmul_q8k({.w = &weights.matrix(),
                           .x = x.data(),
                           .y = results[i].data(),
                           .y_stride = kOut,
                           .n_rows = kRows,
                           .group_begin = 0,
                           .group_end = 1});
        }
        ASSERT_TRUE(SameBits(results[0], results[1])) << Name(format) << " " << last << " " << sign;
      }
    }
  }
}

TEST_P(MatmulTest, FloatDepthNeedsNoMultiple) {
  for (const WeightFormat format : kFloatFormats) {
    for (const int64_t n_in : {1, 2, 7, 31, 49}) {
      for (const int n_rows : {1, 3, 9}) {
        ASSERT_TRUE(MatmulSameAsReference(
            table(), {.format = format, .n_in = n_in, .n_out = 70, .n_rows = n_rows}, 0, 5));
      }
    }
  }
}

TEST_P(MatmulTest, AddsWhereAsked) {
  for (const WeightFormat format : kAllFormats) {
    for (const int n_rows : kRowCounts) {
      ASSERT_TRUE(MatmulSameAsReference(
          table(), {.format = format, .n_in = 64, .n_out = 43, .n_rows = n_rows, .add = true}, 0, 3));
    }
  }
}

TEST_P(MatmulTest, WritesOnlyTheGroupsAsked) {
  const int n_groups = 9;
  for (const WeightFormat format : kAllFormats) {
    for (const int n_rows : {1, 2, 3, 4, 7, 8}) {
      for (const auto& [begin, end] : {std::pair{0, 1}, {0, 4}, {1, 8}, {3, 9}, {8, 9}, {5, 5}}) {
        ASSERT_TRUE(MatmulSameAsReference(
            table(), {.format = format, .n_in = 64, .n_out = 16 * (n_groups - 1) + 2, .n_rows = n_rows},
            begin, end));
      }
    }
  }
}

TEST_P(MatmulTest, LargestIntegersDoNotSaturate) {
  for (const WeightFormat format : kQuantizedFormats) {
    for (const int n_rows : {1, 2, 3, 4, 6, 8}) {
      ASSERT_TRUE(MatmulSameAsReference(
          table(), {.format = format, .n_in = 128, .n_out = 32, .n_rows = n_rows, .fill = Fill::kLargest}, 0,
          2));
    }
  }
}

TEST_P(MatmulTest, RowsAndGroupsAreIndependent) {
  for (const WeightFormat format : kAllFormats) {
    for (const int n_rows : kRowCounts) {
      for (const bool add : {false, true}) {
        ASSERT_TRUE(MatmulRowsIndependent(
            table(), {.format = format, .n_in = 192, .n_out = 103, .n_rows = n_rows, .add = add}));
      }
    }
  }
}

// Sums below the least normal number, weights and activations that are none, and an output that is kept as it
// is.
TEST_P(MatmulTest, Bf16FlushesAsItsInstructionsDo) {
  constexpr int kIn = 80, kRows = 5;
  for (const WeightFormat format : {WeightFormat::kBF16Pairs, WeightFormat::kBF16Amx}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      TinyNumbers tiny(200 + seed);
      const int exponent = seed < 16 ? -63 : -128;
      const std::vector<std::byte> stored = tiny.Bf16s(kIn * kRowGroup, exponent);
      AlignedBytes weights(stored.size());
      std::memcpy(weights.data(), stored.data(), stored.size());
      const PackedMatrix w = {.data = weights.data(),
                              .group_bytes = stored.size(),
                              .n_out = kRowGroup,
                              .n_in = kIn,
                              .format = format};
      AlignedBytes x(size_t{kRows} * 96 * 2);
      for (int row = 0; row < kRows; ++row) {
        const std::vector<float> floats = tiny.Floats(kIn, seed < 16 ? -63 : row % 2 == 0 ? 100 : -126);
        kReferenceTable.round_bf16(floats.data(), kIn, reinterpret_cast<uint16_t*>(x.data()) + row * 96);
      }
      const std::vector<float> before = tiny.Floats(size_t{kRows} * kRowGroup, -128);
      std::vector<float> results[2] = {before, before};
      for (int i = 0; i < 2; ++i) {
        (i == 0 ? kReferenceTable : table())
            .matmul_bf16({.w = &w,
                          .x = reinterpret_cast<const uint16_t*>(x.data()),
                          .x_stride = 96,
                          .y = results[i].data(),
                          .y_stride = kRowGroup,
                          .n_rows = kRows,
                          .group_begin = 0,
                          .group_end = 1,
                          .add = seed % 2 == 0});
      }
      ASSERT_TRUE(SameBits(results[0], results[1])) << Name(format) << " " << seed;
    }
  }
}

// The test of the tests: a table whose batches differ in one last bit is caught by both checks.
TEST(RowDependentTableTest, IsCaught) {
  const KernelTable wrong = RowDependentTable();
  for (const WeightFormat format :
       {WeightFormat::kU4Min, WeightFormat::kSuperU4Min, WeightFormat::kBF16, WeightFormat::kBF16Pairs}) {
    const MatmulShape one{.format = format, .n_in = 64, .n_out = 40, .n_rows = 1};
    MatmulShape two = one;
    two.n_rows = 2;
    EXPECT_TRUE(MatmulSameAsReference(wrong, one, 0, 3));
    EXPECT_FALSE(MatmulSameAsReference(wrong, two, 0, 3));
    EXPECT_TRUE(MatmulRowsIndependent(wrong, one));
    EXPECT_FALSE(MatmulRowsIndependent(wrong, two));
    EXPECT_TRUE(MatmulRowsIndependent(kReferenceTable, two));
  }
}

// ---- round_bf16
// ------------------------------------------------------------------------------------------------

std::vector<uint16_t> Rounded(const KernelTable& table, const std::vector<float>& x) {
  std::vector<uint16_t> out((x.size() + 31) / 32 * 32 + 1, 0xEEEE);
  table.round_bf16(x.data(), static_cast<int>(x.size()), out.data());
  EXPECT_EQ(out.back(), 0xEEEE);
  return out;
}

TEST_P(MatmulTest, RoundsToBf16AsTheReference) {
  Random random(15);
  for (size_t n = 1; n <= 100; ++n) {
    std::vector<float> x(n);
    for (float& f : x) f = std::bit_cast<float>(random.Bits());
    ASSERT_TRUE(SameBits(Rounded(kReferenceTable, x), Rounded(table(), x))) << n;
  }
  std::vector<float> edges;
  for (const uint32_t bits :
       {0x00007FFFU, 0x00008000U, 0x007FFFFFU, 0x00800000U, 0x00807FFFU, 0x00808000U, 0x00808001U,
        0x00818000U, 0x3F7F8000U, 0x3F7FFFFFU, 0x7F7F7FFFU, 0x7F7F8000U, 0x7F7FFFFFU, 0x7F800000U,
        0x7F800001U, 0x7FC00000U, 0x7FFF7FFFU, 0x7FFF8000U, 0x7FFFFFFFU}) {
    edges.push_back(std::bit_cast<float>(bits));
    edges.push_back(std::bit_cast<float>(bits | 0x80000000U));
  }
  EXPECT_TRUE(SameBits(Rounded(kReferenceTable, edges), Rounded(table(), edges)));
}

TEST(RoundBf16ReferenceTest, RoundsToEvenAndFlushes) {
  const std::vector<uint16_t> out =
      Rounded(kReferenceTable, {1.0F, 0x1.01p0F, 0x1.03p0F, -0x1p-127F, -0x1p-126F});
  const std::vector<uint16_t> expected = {0x3F80, 0x3F80, 0x3F82, 0x8000, 0x8080};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()));
  EXPECT_TRUE(std::all_of(out.begin() + 5, out.begin() + 32, [](uint16_t zero) { return zero == 0; }));
}

// ---- quantize_q8
// ------------------------------------------------------------------------------------------------

std::vector<Q8Block> Quantize(const KernelTable& table, const std::vector<float>& x) {
  std::vector<Q8Block> blocks(x.size() / kQuantBlock);
  std::memset(blocks.data(), 0xEE, blocks.size() * sizeof(Q8Block));
  table.quantize_q8(x.data(), static_cast<int>(x.size()), blocks.data());
  return blocks;
}

std::vector<Q8KBlock> QuantizeQ8K(const KernelTable& table, const std::vector<float>& x) {
  std::vector<Q8KBlock> blocks(x.size() / kSuperBlock);
  std::memset(blocks.data(), 0xEE, blocks.size() * sizeof(Q8KBlock));
  table.quantize_q8k(x.data(), static_cast<int>(x.size()), blocks.data());
  return blocks;
}

std::vector<float> Scaled(std::vector<float> x, float scale) {
  for (float& v : x) v *= scale;
  return x;
}

// Of super-blocks, repeated to fill one.
std::vector<float> Repeated(const std::vector<float>& x) {
  std::vector<float> all;
  for (size_t i = 0; i < kSuperBlock; ++i) all.push_back(x[i % x.size()]);
  return all;
}

// Ties: with a largest value of 127 in each half the quants are the values themselves, rounded to even.
std::vector<float> Ties() {
  std::vector<float> x(kQuantBlock);
  for (int i = 0; i < kQuantBlock; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 16) + 0.5F;
  x[7] = x[23] = 127.0F;
  return x;
}

TEST_P(MatmulTest, QuantizesAsTheReference) {
  Random random(5);
  const std::vector<float> x = random.Floats(kSuperBlock * 3);
  for (const float scale : {1.0F, 1e-3F, 1e4F, 1e-30F, 1e38F, 2e-35F, 1e-37F, 1e-38F, 1e-42F, 0.0F, -0.0F}) {
    const std::vector<float> scaled = Scaled(x, scale);
    EXPECT_TRUE(SameBits(Quantize(kReferenceTable, scaled), Quantize(table(), scaled))) << scale;
    EXPECT_TRUE(SameBits(QuantizeQ8K(kReferenceTable, scaled), QuantizeQ8K(table(), scaled))) << scale;
  }
  EXPECT_TRUE(SameBits(Quantize(kReferenceTable, Ties()), Quantize(table(), Ties())));
  const std::vector<float> ties = Repeated(Ties());
  EXPECT_TRUE(SameBits(QuantizeQ8K(kReferenceTable, ties), QuantizeQ8K(table(), ties)));
}

TEST_P(MatmulTest, QuantizesBlocksWithOneLargeValue) {
  for (size_t at = 0; at < kSuperBlock; ++at) {
    for (const float large :
         {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 127.0F, -1e-45F}) {
      std::vector<float> x(kSuperBlock, 1e-45F);
      x[at] = large;
      EXPECT_TRUE(SameBits(Quantize(kReferenceTable, x), Quantize(table(), x))) << at << " " << large;
      EXPECT_TRUE(SameBits(QuantizeQ8K(kReferenceTable, x), QuantizeQ8K(table(), x))) << at << " " << large;
    }
  }
}

// Whatever else is in the block, and in no other block.
TEST_P(MatmulTest, QuantizesWhatIsNotFiniteToNoNumbers) {
  const std::vector<Q8Block> none(1, kNoNumbersQ8);
  for (const float wrong : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
    for (size_t at = 0; at < kQuantBlock; ++at) {
      std::vector<float> x = Random(5).Floats(3 * kQuantBlock);
      std::fill_n(x.begin() + kQuantBlock, kQuantBlock,
                  at % 2 == 0 ? 0.0F : std::numeric_limits<float>::max());
      x[kQuantBlock + at] = wrong;
      const std::vector<Q8Block> blocks = Quantize(table(), x);
      EXPECT_TRUE(SameBits(none, {blocks[1]})) << at << " " << wrong;
      EXPECT_TRUE(SameBits(Quantize(kReferenceTable, x), blocks)) << at << " " << wrong;
    }
  }
}

TEST_P(MatmulTest, QuantizesSuperBlocksThatAreNotFiniteToNoNumbers) {
  const std::vector<Q8KBlock> none(1, kNoNumbersQ8K);
  for (const float wrong : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
    for (size_t at = 0; at < kSuperBlock; at += 3) {
      std::vector<float> x = Random(5).Floats(3 * kSuperBlock);
      std::fill_n(x.begin() + kSuperBlock, kSuperBlock,
                  at % 2 == 0 ? 0.0F : std::numeric_limits<float>::max());
      x[kSuperBlock + at] = wrong;
      const std::vector<Q8KBlock> blocks = QuantizeQ8K(table(), x);
      EXPECT_TRUE(SameBits(none, {blocks[1]})) << at << " " << wrong;
      EXPECT_TRUE(SameBits(QuantizeQ8K(kReferenceTable, x), blocks)) << at << " " << wrong;
    }
  }
}

// So its row's products are NaN, with weights of every format, and the rows beside it are what they were.
TEST_P(MatmulTest, NoNumbersGiveNoNumbers) {
  constexpr int kIn = 512, kOut = 40;
  for (const WeightFormat format : kQuantizedFormats) {
    const TestMatrix weights(format, kIn, kOut, Fill::kRandom, 1);
    std::vector<Q8Block> x = TestActivations(3, kIn, Fill::kRandom, 2);
    std::vector<Q8KBlock> super_x = TestActivationsQ8K(3, kIn, Fill::kRandom, 2);
    const auto product = [&] {
      std::vector<float> y(size_t{3} * kOut);
      const auto of = [&](auto args) {
        args.w = &weights.matrix();
        args.y = y.data();
        args.y_stride = kOut;
        args.n_rows = 3;
        args.group_end = weights.n_groups();
        return args;
      };
      if (HasSuperBlocks(format)) {
        table().matmul_q8k(of(MatmulQ8KArgs{.x = super_x.data()}));
      } else {
        table().matmul_q8(of(MatmulQ8Args{.x = x.data()}));
      }
      return y;
    };
    const std::vector<float> right = product();
    x[kIn / kQuantBlock + 5] = kNoNumbersQ8;  // of the second row
    super_x[kIn / kSuperBlock + 1] = kNoNumbersQ8K;
    const std::vector<float> y = product();
    for (size_t i = 0; i < y.size(); ++i) {
      if (i / kOut == 1) {
        ASSERT_TRUE(std::isnan(y[i])) << i;
      } else {
        ASSERT_EQ(y[i], right[i]) << i;
      }
    }
  }
}

TEST(QuantizeReferenceTest, IsWithinHalfAStep) {
  Random random(6);
  const std::vector<float> x = random.Floats(kQuantBlock * 40, 3.0F);
  const std::vector<Q8Block> blocks = Quantize(kReferenceTable, x);
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Q8Block& block = blocks[b];
    int sum[2] = {}, largest[2] = {};
    for (size_t i = 0; i < kQuantBlock; ++i) {
      const int q = block.q[i];
      const float d = block.d[i / 16];
      EXPECT_LE(std::fabs(x[b * kQuantBlock + i] - d * static_cast<float>(q)), d * 0.50001F);
      sum[i / 16] += q;
      largest[i / 16] = std::max(largest[i / 16], std::abs(q));
    }
    EXPECT_EQ(block.s,
              std::fma(block.d[1], static_cast<float>(sum[1]), block.d[0] * static_cast<float>(sum[0])));
    EXPECT_EQ(block.unused, 0);
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(block.less_8[h], -8 * sum[h]);
      EXPECT_EQ(block.less_128[h], -128 * sum[h]);
      EXPECT_EQ(largest[h], 127);
    }
  }
}

TEST(QuantizeReferenceTest, OfSuperBlocksIsWithinHalfAStep) {
  const std::vector<float> x = Random(7).Floats(kSuperBlock * 10, 3.0F);
  const std::vector<Q8KBlock> blocks = QuantizeQ8K(kReferenceTable, x);
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Q8KBlock& block = blocks[b];
    Q8KBlock sums = block;
    SetSums(sums);
    EXPECT_EQ(std::memcmp(&sums, &block, sizeof(block)), 0);
    int most_steps = 0;
    for (size_t of = 0; of < 8; ++of) {
      const int steps = block.steps[of];
      const float scale = block.d * static_cast<float>(steps);
      int largest = 0;
      for (size_t i = kQuantBlock * of; i < kQuantBlock * (of + 1); ++i) {
        largest = std::max(largest, std::abs(block.q[i]));
        EXPECT_LE(std::fabs(x[b * kSuperBlock + i] - scale * static_cast<float>(block.q[i])),
                  scale * 0.50001F);
      }
      // With fewer steps the largest value would have had no number.
      EXPECT_GE(largest, steps == 1 ? 0 : 127 * (steps - 1) / steps);
      most_steps = std::max(most_steps, steps);
    }
    EXPECT_EQ(most_steps, kMostSteps);
    EXPECT_EQ(block.unused, 0);
  }
}

// With a largest value of 127 in each block the quants are the values themselves.
TEST(QuantizeReferenceTest, SaysWhichSumsMayNotFit16Bits) {
  // How many of 127, and what one more value is.
  struct Case {
    int n, more, sign;
    bool wide[3];
  };
  for (const Case& c : {Case{17, 25, 1, {false, true, true}}, Case{17, 26, 1, {true, true, true}},
                        Case{17, 26, -1, {true, true, true}}, Case{8, 41, 1, {false, false, true}},
                        Case{8, 42, 1, {false, true, true}}, Case{8, 42, -1, {false, true, true}},
                        Case{8, 7, 1, {false, false, false}}, Case{8, 8, -1, {false, false, true}}}) {
    std::vector<float> x(kSuperBlock);
    for (size_t b = 0; b < 8; ++b) x[kQuantBlock * b] = 127.0F;
    for (int i = 0; i < c.n; ++i)
      x[static_cast<size_t>(3 * kQuantBlock + i)] = static_cast<float>(127 * c.sign);
    x[static_cast<size_t>(3 * kQuantBlock + c.n)] = static_cast<float>(c.more * c.sign);
    const Q8KBlock block = QuantizeQ8K(kReferenceTable, x)[0];
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(block.wide[i], c.wide[i] ? 8 : 0) << c.n << " " << c.more << " " << i;
  }
}

TEST(QuantizeReferenceTest, RoundsTiesToEven) {
  const Q8Block block = Quantize(kReferenceTable, Ties())[0];
  EXPECT_EQ(block.q[7], 127);
  EXPECT_EQ(block.q[16], 0);   // 0.5
  EXPECT_EQ(block.q[17], 2);   // 1.5
  EXPECT_EQ(block.q[15], 0);   // -0.5
  EXPECT_EQ(block.q[14], -2);  // -1.5
}

// 127 / max|x| has no float where max|x| is below 2^-120 or so: such a block is all zeros, like one of zeros.
TEST(QuantizeReferenceTest, VanishingBlocksAreZero) {
  for (const float tiny : {1e-37F, 1e-40F, 1e-45F, -1e-45F, 0.0F}) {
    const Q8Block block = Quantize(kReferenceTable, std::vector<float>(kQuantBlock, tiny))[0];
    for (const int32_t less : block.less_8) EXPECT_EQ(less, 0) << tiny;
    for (const int32_t less : block.less_128) EXPECT_EQ(less, 0) << tiny;
    EXPECT_EQ(block.s, 0.0F) << tiny;
    for (const int8_t q : block.q) EXPECT_EQ(q, 0) << tiny;
    const Q8KBlock super = QuantizeQ8K(kReferenceTable, std::vector<float>(kSuperBlock, tiny))[0];
    for (const int8_t q : super.q) EXPECT_EQ(q, 0) << tiny;
    for (const uint8_t steps : super.steps) EXPECT_EQ(steps, 1) << tiny;
  }
}

}  // namespace
}  // namespace longspec::kernels::testing
