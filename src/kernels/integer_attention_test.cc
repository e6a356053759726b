// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic "i8": the reference against ops.h, by hand, and every table where sums are largest and where
// there are no numbers. attention_test.cc compares tables with the reference as for all types.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/testing/floats.h"
#include "kernels/kv_format.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/same_bits.h"
#include "kernels/testing/tables_under_test.h"
#include "tensor/half.h"

namespace longspec::kernels::testing {
namespace {

using longspec::testing::kInfinity;
using longspec::testing::kNan;
using IntegerAttentionTest = TableTest;
LONGSPEC_FOR_EVERY_TABLE(IntegerAttentionTest);

// A chunk of one head whose numbers are set one by one; all are zero at first.
class IntegerChunk {
 public:
  explicit IntegerChunk(int dim)
      : head_dim(dim), keys_(kChunk * RowBytes()), values_(kChunk * RowBytes()), o(Size(dim), 0.0F) {}

  void SetKey(int key, int d, int q) { *KeyCode(key, d) = static_cast<std::byte>(q); }
  void SetValue(int key, int d, int q) {
    values_[Size(key) * RowBytes() + Size(d)] = static_cast<std::byte>(q);
  }
  void SetKeyScale(int key, int group, float scale) { PutHalf(FloatToHalf(scale), KeyScale(key, group)); }
  void SetValueScale(int key, int group, float scale) {
    PutHalf(FloatToHalf(scale), &values_[Size(key) * RowBytes() + Size(head_dim + 2 * group)]);
  }

  std::vector<float> Scores(const KernelTable& table, const std::vector<float>& q, float scale = 1.0F) const {
    const int n_rows = static_cast<int>(q.size()) / head_dim;
    std::vector<float> out(Size(n_rows * kChunk));
    table.scores({.keys = keys_.data(),
                  .q = q.data(),
                  .out = out.data(),
                  .out_stride = kChunk,
                  .scale = scale,
                  .n_rows = n_rows,
                  .head_dim = head_dim,
                  .block_end = kChunk / kKeyGroup,
                  .type = KvType::kI8});
    return out;
  }

  // Of one row that sees all of p.
  std::vector<float> Values(const KernelTable& table, const std::vector<float>& p) const {
    std::vector<float> out = o;
    const int n_keys = static_cast<int>(p.size());
    table.values({.values = values_.data(),
                  .p = p.data(),
                  .p_stride = kChunk,
                  .o = out.data(),
                  .o_stride = head_dim,
                  .n_keys = &n_keys,
                  .n_rows = 1,
                  .head_dim = head_dim,
                  .type = KvType::kI8});
    return out;
  }

  size_t RowBytes() const { return FormatOf(KvType::kI8, head_dim).bytes(); }

  int head_dim;

 private:
  std::byte* Block(int key) { return &keys_[Size(key / kKeyGroup) * kKeyGroup * RowBytes()]; }
  std::byte* KeyCode(int key, int d) {
    return Block(key) + (d / 4 * kKeyGroup + key % kKeyGroup) * 4 + d % 4;
  }
  std::byte* KeyScale(int key, int group) {
    return Block(key) + kKeyGroup * head_dim + (group * kKeyGroup + key % kKeyGroup) * 2;
  }
  static void PutHalf(uint16_t h, std::byte* to) { std::memcpy(to, &h, sizeof(h)); }

  std::vector<std::byte> keys_, values_;

 public:
  std::vector<float> o;
};

// ---- Scores, by hand

TEST(I8ReferenceTest, ScoresGroupByGroup) {
  IntegerChunk chunk(64);
  std::vector<float> q(64, 0.0F);
  q[0] = 127.0F;   // d is 1
  q[1] = 2.5F;     // 2: halves go to the even one
  q[2] = -3.5F;    // -4
  q[33] = 254.0F;  // d is 2
  q[34] = 3.0F;    // 2
  chunk.SetKey(20, 0, -128);
  chunk.SetKey(20, 1, 100);
  chunk.SetKey(20, 2, 7);
  chunk.SetKey(20, 33, 1);
  chunk.SetKey(20, 34, -5);
  chunk.SetKeyScale(20, 0, 0.5F);
  chunk.SetKeyScale(20, 1, 0.25F);
  // (127 * -128 + 2 * 100 - 4 * 7) * 1 * 0.5 + (127 * 1 + 2 * -5) * 2 * 0.25 = -8042 + 58.5
  const std::vector<float> scores = chunk.Scores(kReferenceTable, q, 0.125F);
  EXPECT_EQ(scores[20], -7983.5F / 8);
  EXPECT_EQ(scores[21], 0.0F);
}

TEST(I8ReferenceTest, GroupsOfAScoreAreAddedInOrder) {
  IntegerChunk chunk(96);
  std::vector<float> q(96, 0.0F);
  for (const int d : {0, 32, 64}) q[Size(d)] = 127.0F;
  for (const int key : {0, 1}) {
    chunk.SetKey(key, 0, key == 0 ? 127 : 1);
    chunk.SetKey(key, 32, key == 0 ? -127 : 127);
    chunk.SetKey(key, 64, key == 0 ? 1 : -127);
    for (const int group : {0, 1, 2}) chunk.SetKeyScale(key, group, 0x1p14F);
  }
  // 127 * 127 * 2^14 loses a 127 * 2^-11 beside it.
  chunk.SetKeyScale(0, 2, 0x1p-11F);
  chunk.SetKeyScale(1, 0, 0x1p-11F);
  const std::vector<float> scores = chunk.Scores(kReferenceTable, q);
  EXPECT_EQ(scores[0], 127.0F * 0x1p-11F);
  EXPECT_EQ(scores[1], 0.0F);
}

// ---- Values, by hand

TEST(I8ReferenceTest, ValuesKeyGroupByKeyGroup) {
  IntegerChunk chunk(64);
  std::vector<float> p(34, 0.0F);
  p[0] = 1.0F;
  p[1] = 0.5F;
  p[33] = 0.25F;
  for (const int key : {0, 1, 33}) {
    chunk.SetValueScale(key, 0, 127.0F);
    chunk.SetValueScale(key, 1, 2.0F);
    chunk.SetValue(key, 3, key == 33 ? -128 : 10 + key);
    chunk.SetValue(key, 40, 100);
  }
  chunk.o[3] = 1000.0F;
  // Weights of the first 32 keys and dimensions: 127 and 63.5, d is 1, integers 127 and 64. Then 31.75: d is
  // 0.25, the integer 127.
  const std::vector<float> o = chunk.Values(kReferenceTable, p);
  EXPECT_EQ(o[3], 1000.0F + 127.0F * 10 + 64.0F * 11 - 0.25F * 127 * 128);
  EXPECT_EQ(o[4], 0.0F);
  // Of the other dimensions: 2 and 1 are 127 and 64 times 2/127; 0.5 is 127 times 0.5/127.
  const float d = 2.0F / 127.0F, later = 0.5F / 127.0F;
  EXPECT_EQ(o[40], std::fma(12700.0F, later, std::fma(19100.0F, d, 0.0F)));
}

// The group worked in docs/arithmetic.md.
TEST(I8ReferenceTest, TheWorkedGroup) {
  IntegerChunk chunk(32);
  const float scales[] = {0.5F, 1.0F, 0.25F};
  const int values[] = {100, -60, 127};
  for (const int key : {0, 1, 2}) {
    chunk.SetValueScale(key, 0, scales[key]);
    chunk.SetValue(key, 7, values[key]);
  }
  chunk.o[7] = 3.0F;
  EXPECT_EQ(chunk.Values(kReferenceTable, {1.0F, 0.5F, 0.25F})[7], std::fma(7112.0F, 0.5F / 127.0F, 3.0F));
}

// A group of fewer keys is one of zeros.
TEST(I8ReferenceTest, AnIncompleteGroupHasZeros) {
  IntegerChunk chunk(32), longer(32);
  std::vector<float> p;
  for (int key = 0; key < 41; ++key) {
    p.push_back(1.0F / static_cast<float>(key + 1));
    for (int d = 0; d < 32; ++d) {
      chunk.SetValue(key, d, key * 3 - d);
      longer.SetValue(key, d, key * 3 - d);
    }
    chunk.SetValueScale(key, 0, 0.01F);
    longer.SetValueScale(key, 0, 0.01F);
  }
  for (int key = 41; key < 64; ++key) {  // not seen, whatever it is
    chunk.SetValueScale(key, 0, kNan);
    longer.SetValueScale(key, 0, 5.0F);
  }
  std::vector<float> filled = p;
  filled.resize(64, 0.0F);
  EXPECT_TRUE(SameBits(chunk.Values(kReferenceTable, p), longer.Values(kReferenceTable, filled)));
}

TEST(I8ReferenceTest, IsNearTheFloatsItStandsFor) {
  const int dim = 64;
  const std::vector<std::byte> keys = StoredKeys(KvType::kI8, dim, 1),
                               values = StoredValues(KvType::kI8, dim, 2);
  const std::vector<float> q = Random(3).Floats(Size(dim));
  std::vector<float> p = Random(4).Floats(kChunk), scores(kChunk), o(Size(dim), 0.0F);
  for (float& f : p) f = std::fabs(f);
  kReferenceTable.scores({.keys = keys.data(),
                          .q = q.data(),
                          .out = scores.data(),
                          .out_stride = kChunk,
                          .n_rows = 1,
                          .head_dim = dim,
                          .block_end = 16,
                          .type = KvType::kI8});
  const int n_keys = kChunk;
  kReferenceTable.values({.values = values.data(),
                          .p = p.data(),
                          .p_stride = kChunk,
                          .o = o.data(),
                          .o_stride = dim,
                          .n_keys = &n_keys,
                          .n_rows = 1,
                          .head_dim = dim,
                          .type = KvType::kI8});
  for (int key = 0; key < kChunk; ++key) {
    double exact = 0, sizes = 0;
    for (int d = 0; d < dim; ++d) {
      const double k = KeyElement(KvType::kI8, dim, keys.data(), key, d);
      exact += k * double{q[Size(d)]};
      sizes += std::fabs(k);
    }
    ASSERT_NEAR(scores[Size(key)], exact, sizes / 254 + 1e-6) << key;  // half a step each, of at most 1 / 127
  }
  const size_t row_bytes = FormatOf(KvType::kI8, dim).bytes();
  for (int d = 0; d < dim; ++d) {
    double exact = 0, steps = 0;
    for (int key = 0; key < kChunk; key += kQuantBlock) {
      double most = 0, codes = 0;
      for (int i = key; i < key + kQuantBlock; ++i) {
        const std::byte* row = values.data() + Size(i) * row_bytes;
        uint16_t h;
        std::memcpy(&h, row + dim + d / kQuantBlock * 2, sizeof(h));
        const double v = ValueElement(KvType::kI8, dim, row, d);
        exact += v * double{p[Size(i)]};
        most = std::max(most, double{HalfToFloat(h)} * double{p[Size(i)]});
        codes += std::fabs(static_cast<double>(static_cast<int8_t>(row[d])));
      }
      steps += most / 254 * codes;
    }
    ASSERT_NEAR(o[Size(d)], exact, steps + 1e-6) << d;
  }
}

// ---- What is stored

TEST(I8ReferenceTest, StoresTheNumbersOfQ8InItsOwnOrder) {
  const std::vector<float> x = Random(5).Floats(96, 3.0F);
  for (const int offset : {0, 21, 255}) {
    std::vector<std::byte> keys[2], values[2];
    for (const int i : {0, 1}) {
      const KvType type = i == 0 ? KvType::kI8 : KvType::kQ8_0;
      const size_t bytes = kChunk * FormatOf(type, 96).bytes();
      keys[i].resize(bytes);
      values[i].resize(bytes);
      kReferenceTable.store_kv({.k = x.data(),
                                .v = x.data(),
                                .keys = keys[i].data(),
                                .values = values[i].data(),
                                .offset = offset,
                                .head_dim = 96,
                                .k_type = type,
                                .v_type = type});
    }
    EXPECT_EQ(values[0], values[1]);
    const size_t block = Size(offset / 16) * 16 * FormatOf(KvType::kI8, 96).bytes(), lane = Size(offset % 16);
    for (size_t d = 0; d < 96; ++d)
      EXPECT_EQ(keys[0][block + (d / 4 * 16 + lane) * 4 + d % 4], keys[1][block + d * 16 + lane]) << d;
    for (size_t i = 96 * 16; i < 102 * 16; ++i) EXPECT_EQ(keys[0][block + i], keys[1][block + i]);
  }
}

// ---- Every table

TEST_P(IntegerAttentionTest, LargestSumsDoNotSaturate) {
  IntegerChunk chunk(128);
  Random random(6);
  const int extremes[] = {-128, -127, 127};
  for (int key = 0; key < kChunk; ++key) {
    // A quarter each: all the least, all the most, and mixtures.
    for (int d = 0; d < 128; ++d) {
      const int which = key % 4 == 0 ? 0 : key % 4 == 1 ? 2 : random.Below(3);
      chunk.SetKey(key, d, extremes[which]);
      chunk.SetValue(key, d, extremes[d % 4 == 0 ? 0 : d % 4 == 1 ? 2 : random.Below(3)]);
    }
    for (int group = 0; group < 4; ++group) {
      chunk.SetKeyScale(key, group, 1.0F);
      chunk.SetValueScale(key, group, 1.0F);
    }
  }
  std::vector<float> q(5 * 128, 127.0F);
  std::fill(q.begin() + 128, q.begin() + 256, -127.0F);
  for (size_t i = 256; i < q.size(); ++i) q[i] = random.Below(2) == 0 ? 127.0F : -127.0F;
  const std::vector<float> scores = chunk.Scores(table(), q);
  EXPECT_EQ(scores[0], -128.0F * 127 * 128);
  EXPECT_EQ(scores[kChunk + 1], -127.0F * 127 * 128);
  EXPECT_TRUE(SameBits(chunk.Scores(kReferenceTable, q), scores));
  const std::vector<float> p(kChunk, 127.0F), o = chunk.Values(table(), p);
  EXPECT_EQ(o[0], -128.0F * 127 * kChunk);
  EXPECT_EQ(o[1], 127.0F * 127 * kChunk);
  EXPECT_TRUE(SameBits(chunk.Values(kReferenceTable, p), o));
}

// Halves between integers, and magnitudes down to those whose quotient is no float.
TEST_P(IntegerAttentionTest, RoundsAsTheReferenceDoes) {
  IntegerChunk chunk(64);
  Random random(7);
  for (int key = 0; key < kChunk; ++key) {
    for (int d = 0; d < 64; ++d) {
      chunk.SetKey(key, d, random.Below(256) - 128);
      chunk.SetValue(key, d, random.Below(256) - 128);
    }
    for (const int group : {0, 1}) {
      chunk.SetKeyScale(key, group, std::ldexp(1.0F, random.Below(20) - 10));
      chunk.SetValueScale(key, group, 1.0F);
    }
  }
  for (const int exponent : {120, 40, 0, -40, -113, -114, -115, -119, -126, -140}) {
    std::vector<float> q(Size(64 * 7)), p(kChunk);
    for (size_t i = 0; i < q.size(); ++i)
      q[i] = std::ldexp(static_cast<float>(i % 64 == 0 ? 127 : random.Below(255) - 127) * 0.5F, exponent);
    for (float& f : p) f = std::ldexp(static_cast<float>(random.Below(255)) * 0.5F, exponent);
    ASSERT_TRUE(SameBits(chunk.Scores(kReferenceTable, q), chunk.Scores(table(), q))) << exponent;
    ASSERT_TRUE(SameBits(chunk.Values(kReferenceTable, p), chunk.Values(table(), p))) << exponent;
  }
}

TEST_P(IntegerAttentionTest, WhatIsNoNumberShows) {
  IntegerChunk chunk(64);
  for (int key = 0; key < kChunk; ++key) {
    for (const int group : {0, 1}) {
      chunk.SetKeyScale(key, group, 1.0F);
      chunk.SetValueScale(key, group, 1.0F);
    }
    chunk.SetKey(key, 1, 1);
    chunk.SetValue(key, 1, 1);
  }
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    std::vector<float> q(128, 1.0F);  // two rows
    q[40] = bad;
    const std::vector<float> scores = chunk.Scores(table(), q);
    for (int key = 0; key < kChunk; ++key) {
      ASSERT_TRUE(std::isnan(scores[Size(key)])) << bad;
      ASSERT_EQ(scores[Size(kChunk + key)], 1.0F) << bad;  // the other row
    }
  }
  for (const float bad : {kNan, -kNan, kInfinity, -1.0F, -0.0F}) {
    std::vector<float> p(70, 1.0F);
    p[66] = bad;
    const std::vector<float> o = chunk.Values(table(), p);
    EXPECT_TRUE(std::isnan(o[1])) << bad;
    EXPECT_TRUE(std::isnan(o[63])) << bad;
    p.resize(64);
    EXPECT_EQ(chunk.Values(table(), p)[1], 64.0F);
  }
  chunk.SetKeyScale(9, 1, kNan);
  chunk.SetValueScale(9, 1, kNan);
  const std::vector<float> scores = chunk.Scores(table(), std::vector<float>(64, 1.0F));
  EXPECT_TRUE(std::isnan(scores[9]));
  EXPECT_EQ(scores[8], 1.0F);
  std::vector<float> p(12, 1.0F);
  EXPECT_EQ(chunk.Values(table(), p)[1], 12.0F);
  EXPECT_TRUE(std::isnan(chunk.Values(table(), p)[40]));
  p.resize(9);
  EXPECT_EQ(chunk.Values(table(), p)[40], 0.0F);
}

// A row's bits are the same whoever is beside it, and wherever its last groups are read.
TEST_P(IntegerAttentionTest, RowsOfValuesAreIndependent) {
  const int dim = 96, n_rows = 11;
  const std::vector<std::byte> values = StoredValues(KvType::kI8, dim, 8);
  std::vector<float> p = Random(9).Floats(Size(n_rows * kChunk));
  for (float& f : p) f = std::fabs(f);
  std::vector<int> n_keys;
  for (int row = 0; row < n_rows; ++row) n_keys.push_back(row * 26 % 257);
  const auto of = [&](int first, int rows, std::vector<float>* o) {
    table().values({.values = values.data(),
                    .p = p.data() + Size(first * kChunk),
                    .p_stride = kChunk,
                    .o = o->data(),
                    .o_stride = dim,
                    .n_keys = n_keys.data() + first,
                    .n_rows = rows,
                    .head_dim = dim,
                    .type = KvType::kI8});
  };
  std::vector<float> together(Size(n_rows * dim), 0.5F);
  of(0, n_rows, &together);
  const size_t row_bytes = FormatOf(KvType::kI8, dim).bytes();
  for (int row = 0; row < n_rows; ++row) {
    const std::vector<float> expected(together.begin() + row * dim, together.begin() + (row + 1) * dim);
    std::vector<float> alone(Size(dim), 0.5F);
    of(row, 1, &alone);
    ASSERT_TRUE(SameBits(expected, alone)) << row;
    // The last groups gathered.
    for (const int whole : {0, 32, n_keys[Size(row)] / 32 * 32}) {
      if (whole > n_keys[Size(row)]) continue;
      std::vector<float> cut(Size(dim), 0.5F);
      std::vector<const std::byte*> rest;
      for (int key = whole; key < n_keys[Size(row)]; ++key)
        rest.push_back(values.data() + Size(key) * row_bytes);
      table().values({.values = values.data(),
                      .p = p.data() + Size(row * kChunk),
                      .p_stride = kChunk,
                      .o = cut.data(),
                      .o_stride = dim,
                      .n_keys = &whole,
                      .n_rows = 1,
                      .head_dim = dim,
                      .type = KvType::kI8});
      table().gathered_values({.values = rest.data(),
                               .p = p.data() + Size(row * kChunk + whole),
                               .p_stride = kChunk,
                               .o = cut.data(),
                               .o_stride = dim,
                               .n_keys = static_cast<int>(rest.size()),
                               .n_rows = 1,
                               .head_dim = dim,
                               .type = KvType::kI8});
      ASSERT_TRUE(SameBits(expected, cut)) << row << " " << whole;
    }
  }
}

}  // namespace
}  // namespace longspec::kernels::testing
