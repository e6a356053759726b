// SPDX-License-Identifier: Apache-2.0
//
// Attention inside a chunk, for every table against the reference, and the reference against the mathematics.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kv_format.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/same_bits.h"
#include "kernels/testing/tables_under_test.h"
#include "tensor/half.h"

namespace longspec::kernels::testing {
namespace {

using AttentionTest = TableTest;
LONGSPEC_FOR_EVERY_TABLE(AttentionTest);

constexpr int kHeadDims[] = {16, 32, 48, 64, 80, 96, 112, 128, 256};
constexpr int kTileRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};

// One head of one chunk, and rows that look at it.
struct Chunk {
  Chunk(KvType t, int dim, int rows)
      : type(t),
        head_dim(dim),
        n_rows(rows),
        keys(StoredKeys(t, dim, 30)),
        values(StoredValues(t, dim, 31)),
        q(Random(32).Floats(Size(rows * dim))),
        p(Random(33).Floats(Size((rows - 1) * kPStride + kChunk))),
        o(Random(34).Floats(Size(rows * OStride()))) {
    if (type != KvType::kI8) return;
    for (float& f : p) f = std::fabs(f);  // as softmax numerators are
  }

  static constexpr int64_t kPStride = kChunk + 8;
  int64_t OStride() const { return head_dim + kStateHeader; }
  size_t RowBytes() const { return FormatOf(type, head_dim).bytes(); }

  std::vector<float> Scores(const KernelTable& table, int block_begin, int block_end) const {
    std::vector<float> out(Size((n_rows - 1) * kPStride + kChunk), -7.0F);
    table.scores({.keys = keys.data(),
                  .q = q.data(),
                  .out = out.data(),
                  .out_stride = kPStride,
                  .scale = 0.125F,
                  .n_rows = n_rows,
                  .head_dim = head_dim,
                  .block_begin = block_begin,
                  .block_end = block_end,
                  .type = type});
    return out;
  }

  std::vector<float> Values(const KernelTable& table, const std::vector<int>& n_keys) const {
    std::vector<float> out = o;
    table.values({.values = values.data(),
                  .p = p.data(),
                  .p_stride = kPStride,
                  .o = out.data(),
                  .o_stride = OStride(),
                  .n_keys = n_keys.data(),
                  .n_rows = n_rows,
                  .head_dim = head_dim,
                  .type = type});
    return out;
  }

  // The keys at `offsets`, in that order.
  std::vector<float> Gathered(const KernelTable& table, const std::vector<int>& offsets) const {
    std::vector<const std::byte*> at;
    for (const int offset : offsets) at.push_back(values.data() + Size(offset) * RowBytes());
    std::vector<float> out = o;
    table.gathered_values({.values = at.data(),
                           .p = p.data(),
                           .p_stride = kPStride,
                           .o = out.data(),
                           .o_stride = OStride(),
                           .n_keys = static_cast<int>(at.size()),
                           .n_rows = n_rows,
                           .head_dim = head_dim,
                           .type = type});
    return out;
  }

  KvType type;
  int head_dim, n_rows;
  std::vector<std::byte> keys, values;
  std::vector<float> q, p, o;
};

// Rows of a tree end at different keys.
std::vector<int> RaggedKeys(int n_rows, uint32_t seed) {
  Random random(seed);
  std::vector<int> n_keys(Size(n_rows));
  for (int& n : n_keys)
    n = random.Below(4) == 0 ? (random.Below(2) == 0 ? 0 : kChunk) : random.Below(kChunk + 1);
  return n_keys;
}

TEST_P(AttentionTest, ScoresOfEveryHeadAndRowCount) {
  for (const KvType type : kKvTypes) {
    for (const int head_dim : kHeadDims) {
      if (head_dim % KvMultiple(type) != 0) continue;
      for (const int n_rows : kTileRowCounts) {
        if (head_dim > 64 && n_rows % 3 != 1) continue;
        const Chunk chunk(type, head_dim, n_rows);
        ASSERT_TRUE(SameBits(chunk.Scores(kReferenceTable, 2, 7), chunk.Scores(table(), 2, 7)))
            << Name(type) << " " << head_dim << " " << n_rows;
      }
    }
  }
}

TEST_P(AttentionTest, ScoresOfEveryBlockRange) {
  for (const KvType type : kKvTypes) {
    for (const int n_rows : {1, 2, 3, 5, 6, 8}) {
      const Chunk chunk(type, 32, n_rows);
      for (const auto& [begin, end] : {std::pair{0, 16}, {0, 0}, {0, 1}, {15, 16}, {3, 5}, {1, 4}, {4, 11}}) {
        ASSERT_TRUE(SameBits(chunk.Scores(kReferenceTable, begin, end), chunk.Scores(table(), begin, end)))
            << Name(type) << " " << n_rows << " blocks " << begin << ".." << end;
      }
    }
  }
}

// ---- Arithmetic "bf16" where denormals begin
// -----------------------------------------------------------------------

TEST_P(AttentionTest, Bf16FlushesAsItsInstructionsDo) {
  int denormal = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    TinyNumbers tiny(100 + seed);
    Chunk chunk(seed % 2 == 0 ? KvType::kBF16 : KvType::kBF16Amx, seed % 8 == 1 ? 48 : 64, 11);
    chunk.keys = tiny.Bf16s(chunk.keys.size() / 2, -63);
    chunk.values = tiny.Bf16s(chunk.values.size() / 2, -60);
    chunk.q = tiny.Floats(chunk.q.size(), -63);
    chunk.p = tiny.Floats(chunk.p.size(), -60);
    chunk.o = tiny.Floats(chunk.o.size(), -121);
    const std::vector<float> scores = chunk.Scores(kReferenceTable, 0, 16);
    const std::vector<int> n_keys = RaggedKeys(11, seed);
    ASSERT_TRUE(SameBits(scores, chunk.Scores(table(), 0, 16))) << seed;
    ASSERT_TRUE(SameBits(chunk.Values(kReferenceTable, n_keys), chunk.Values(table(), n_keys))) << seed;
    const std::vector<int> offsets = {4, 9, 200, 3, 3, 77, 255};
    ASSERT_TRUE(SameBits(chunk.Gathered(kReferenceTable, offsets), chunk.Gathered(table(), offsets))) << seed;
    for (const float score : scores) denormal += std::fpclassify(score) == FP_SUBNORMAL ? 1 : 0;
  }
  EXPECT_GT(denormal, 20);  // the scaling by 1/8 comes after the sum and is not flushed
}

TEST_P(AttentionTest, Bf16DenormalInputsAreZeros) {
  for (const KvType type : {KvType::kBF16, KvType::kBF16Amx}) {
    for (const int exponent : {-133, -130, -126}) {
      TinyNumbers tiny(7);
      Chunk chunk(type, 32, 5);
      chunk.keys = tiny.Bf16s(chunk.keys.size() / 2, exponent);
      chunk.values = tiny.Bf16s(chunk.values.size() / 2, exponent);
      chunk.q = tiny.Floats(chunk.q.size(), exponent);
      chunk.p = tiny.Floats(chunk.p.size(), exponent);
      for (auto* other : {&chunk.q, &chunk.p, &chunk.o}) {
        for (size_t i = 0; i < other->size(); i += 2) (*other)[i] = std::ldexp(tiny.Next(0), 100);
      }
      const std::vector<int> n_keys = {0, 1, 7, 255, 256};
      ASSERT_TRUE(SameBits(chunk.Scores(kReferenceTable, 0, 16), chunk.Scores(table(), 0, 16))) << exponent;
      ASSERT_TRUE(SameBits(chunk.Values(kReferenceTable, n_keys), chunk.Values(table(), n_keys))) << exponent;
    }
  }
}

// One step each, o + p * v, as VDPBF16PS of a Zen 5 does it. Halfway to the least normal number and above is
// that number only if it is so with any exponent.
TEST_P(AttentionTest, Bf16StepsAtTheLeastNormalNumber) {
  struct Case {
    float o, p, v, expected;
  };
  for (const Case& c : {Case{0x1p-126F, -0x1p-75F, 0x1p-76F, 0x1p-126F},
                        {0x1p-126F, -0x1.8p-75F, 0x1p-76F, 0.0F},
                        {0x1p-126F, -0x1.4p-75F, 0x1p-76F, 0.0F},
                        {0x1p-126F, -0x1.ap-76F, 0x1p-76F, 0x1p-126F},
                        {0x1p-126F, -0x1p-75F, 0x1p-75F, 0.0F},
                        {-0x1p-126F, 0x1p-75F, 0x1p-75F, -0.0F},
                        {0x1p-125F, -0x1p-63F, 0x1p-63F, 0x1p-126F},
                        {0x1p-127F, 0.0F, 0.0F, 0.0F},
                        {1.0F, 0x1.01p0F, 1.0F, 2.0F},
                        {1.0F, 0x1.03p0F, 1.0F, 0x1.02p1F}}) {
    Chunk chunk(KvType::kBF16, 16, 1);
    std::fill(chunk.o.begin(), chunk.o.end(), c.o);
    chunk.p[0] = c.p;
    const uint16_t v = FloatToBFloat16(c.v);
    for (size_t i = 0; i < 16; ++i) std::memcpy(&chunk.values[2 * i], &v, sizeof(v));
    const std::vector<float> expected(16, c.expected);
    for (const KernelTable* t : {&kReferenceTable, &table()}) {
      const std::vector<float> o = chunk.Values(*t, {1});
      EXPECT_TRUE(SameBits(expected, std::vector<float>(o.begin(), o.begin() + 16))) << t->name << " " << c.p;
    }
  }
}

// The second of a pair is added first.
TEST(Bf16ReferenceTest, AddsPairsBackwards) {
  Chunk chunk(KvType::kBF16, 16, 1);
  std::fill(chunk.o.begin(), chunk.o.end(), 0x1p25F);
  chunk.p = {1.0F, -0x1p25F};
  chunk.p.resize(kChunk);
  const uint16_t one = FloatToBFloat16(1.0F);
  for (size_t i = 0; i < 32; ++i) std::memcpy(&chunk.values[2 * i], &one, sizeof(one));
  EXPECT_EQ(chunk.Values(kReferenceTable, {2})[0], 1.0F);  // the other way round 1 would have been lost
  EXPECT_EQ(chunk.Values(kReferenceTable, {1})[0], 0x1p25F);
}

// Sums of even and of odd keys, of blocks of 32.
TEST(Bf16ReferenceTest, AddsTilesByTheirHalves) {
  Chunk chunk(KvType::kBF16Amx, 16, 1);
  const uint16_t one = FloatToBFloat16(1.0F);
  for (size_t i = 0; i < 40 * 16; ++i) std::memcpy(&chunk.values[2 * i], &one, sizeof(one));
  std::fill(chunk.o.begin(), chunk.o.end(), 0.0F);
  const auto sum_of = [&](std::vector<std::pair<int, float>> weights, int n_keys) {
    std::fill(chunk.p.begin(), chunk.p.end(), 0.0F);
    for (const auto& [key, weight] : weights) chunk.p[Size(key)] = weight;
    return chunk.Values(kReferenceTable, {n_keys})[0];
  };
  // A one is lost beside 2^25 where it is added to it, and only there.
  EXPECT_EQ(sum_of({{0, 0x1p25F}, {2, 1.0F}, {4, -0x1p25F}}, 40), 0.0F);
  EXPECT_EQ(sum_of({{0, 0x1p25F}, {3, 1.0F}, {4, -0x1p25F}}, 40), 1.0F);
  EXPECT_EQ(sum_of({{0, 0x1p25F}, {30, -0x1p25F}, {33, 1.0F}}, 40), 1.0F);
  EXPECT_EQ(sum_of({{0, 0x1p25F}, {31, 1.0F}, {32, -0x1p25F}}, 40), 0.0F);
  EXPECT_EQ(sum_of({{0, 1.0F}, {39, 1.0F}}, 39), 1.0F);
}

TEST_P(AttentionTest, ScoreRowsAreIndependent) {
  for (const KvType type : kKvTypes) {
    const Chunk chunk(type, 64, 13);
    const std::vector<float> together = chunk.Scores(table(), 0, 16);
    for (int row = 0; row < 13; ++row) {
      Chunk one = chunk;
      one.n_rows = 1;
      one.q.assign(chunk.q.begin() + row * 64, chunk.q.begin() + (row + 1) * 64);
      const auto begin = together.begin() + row * Chunk::kPStride;
      ASSERT_TRUE(SameBits(one.Scores(table(), 0, 16), std::vector<float>(begin, begin + kChunk)))
          << Name(type) << " " << row;
    }
  }
}

TEST(ScoresReferenceTest, IsAScaledDot) {
  const Chunk chunk(KvType::kF32, 48, 2);
  const std::vector<float> scores = chunk.Scores(kReferenceTable, 0, 16);
  for (int row = 0; row < 2; ++row) {
    for (int key = 0; key < kChunk; ++key) {
      double dot = 0;
      for (int d = 0; d < 48; ++d) {
        float k;
        std::memcpy(&k, &chunk.keys[Size((key / 16 * 48 + d) * 16 + key % 16) * 4], 4);
        dot += double{k} * double{chunk.q[Size(row * 48 + d)]};
      }
      ASSERT_NEAR(scores[Size(row * Chunk::kPStride + key)], dot * 0.125, 1e-5);
    }
  }
}

TEST_P(AttentionTest, ValuesOfEveryHeadAndRowCount) {
  for (const KvType type : kKvTypes) {
    for (const int head_dim : kHeadDims) {
      if (head_dim % KvMultiple(type) != 0) continue;
      for (const int n_rows : kTileRowCounts) {
        if (head_dim > 64 && n_rows % 3 != 1) continue;
        const Chunk chunk(type, head_dim, n_rows);
        const std::vector<int> n_keys = RaggedKeys(n_rows, static_cast<uint32_t>(head_dim + n_rows));
        ASSERT_TRUE(SameBits(chunk.Values(kReferenceTable, n_keys), chunk.Values(table(), n_keys)))
            << Name(type) << " " << head_dim << " " << n_rows;
      }
    }
  }
}

TEST_P(AttentionTest, ValuesOfEveryNumberOfKeys) {
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kI8}) {
    for (const int n_rows : {1, 4}) {
      const Chunk chunk(type, KvMultiple(type), n_rows);
      for (int n = 0; n <= kChunk; ++n) {
        const std::vector<int> n_keys(Size(n_rows), n);
        ASSERT_TRUE(SameBits(chunk.Values(kReferenceTable, n_keys), chunk.Values(table(), n_keys)))
            << Name(type) << " " << n;
      }
    }
  }
}

// All scores of a row beyond its own keys may hold anything, and a key no row sees is never read.
TEST_P(AttentionTest, ValuesIgnoreWhatNoRowSees) {
  for (const KvType type : kKvTypes) {
    Chunk chunk(type, 32, 3), trimmed = chunk;
    const std::vector<int> n_keys = {5, 40, 17};
    trimmed.values.resize(40 * chunk.RowBytes());
    trimmed.values.shrink_to_fit();
    EXPECT_TRUE(SameBits(chunk.Values(kReferenceTable, n_keys), trimmed.Values(table(), n_keys)))
        << Name(type);
  }
}

// Sums over values at any slots, in any order and some of them twice, have the bits of the loop.
TEST_P(AttentionTest, GatheredValues) {
  for (const KvType type : kKvTypes) {
    for (const int head_dim : kHeadDims) {
      if (head_dim % KvMultiple(type) != 0) continue;
      for (const int n_rows : {1, 2, 3, 4, 6, 7, 9}) {
        const Chunk chunk(type, head_dim, n_rows);
        for (const auto& offsets : {std::vector<int>{}, {9}, {200, 3, 3, 77, 255, 0, 128}}) {
          ASSERT_TRUE(SameBits(chunk.Gathered(kReferenceTable, offsets), chunk.Gathered(table(), offsets)))
              << Name(type) << " " << head_dim << " " << n_rows;
        }
      }
    }
  }
}

TEST(GatheredReferenceTest, InOrderIsTheSameAsTheChunk) {
  const Chunk chunk(KvType::kBF16, 64, 2);
  std::vector<int> offsets;
  for (int i = 0; i < 37; ++i) offsets.push_back(i);
  EXPECT_TRUE(SameBits(chunk.Values(kReferenceTable, {37, 37}), chunk.Gathered(kReferenceTable, offsets)));
}

TEST(ValuesReferenceTest, IsAWeightedSum) {
  const Chunk chunk(KvType::kF32, 16, 1);
  const std::vector<float> o = chunk.Values(kReferenceTable, {256});
  for (int d = 0; d < 16; ++d) {
    double sum = chunk.o[Size(d)];
    for (int key = 0; key < kChunk; ++key) {
      float v;
      std::memcpy(&v, &chunk.values[Size(key * 16 + d) * 4], 4);
      sum += double{chunk.p[Size(key)]} * double{v};
    }
    EXPECT_NEAR(o[Size(d)], sum, 1e-4);
  }
}

// ---- Softmax states
// ---------------------------------------------------------------------------------------------

struct Softmax {
  std::vector<float> numerators;
  std::vector<float> state = std::vector<float>(kStateHeader, -5.0F);
};

Softmax SoftmaxOf(const KernelTable& table, std::vector<float> scores) {
  Softmax result;
  result.numerators = std::move(scores);
  table.softmax_chunk(result.numerators.data(), static_cast<int>(result.numerators.size()),
                      result.state.data());
  return result;
}

void ExpectSameSoftmax(const KernelTable& table, const std::vector<float>& scores) {
  const Softmax expected = SoftmaxOf(kReferenceTable, scores), actual = SoftmaxOf(table, scores);
  ASSERT_TRUE(SameBits(expected.numerators, actual.numerators)) << "n " << scores.size();
  ASSERT_TRUE(SameBits(expected.state, actual.state)) << "n " << scores.size();
}

TEST_P(AttentionTest, SoftmaxOfEveryLength) {
  for (int n = 1; n <= kChunk; ++n) {
    ExpectSameSoftmax(table(), Random(static_cast<uint32_t>(n)).Floats(Size(n), 10.0F));
    ExpectSameSoftmax(table(), Random(static_cast<uint32_t>(n)).Floats(Size(n), 2000.0F));
  }
}

TEST_P(AttentionTest, SoftmaxOfEqualScoresAndZeros) {
  for (const int n : {1, 5, 16, 33, 256}) {
    ExpectSameSoftmax(table(), std::vector<float>(Size(n), -3.25F));
    ExpectSameSoftmax(table(), std::vector<float>(Size(n), -0.0F));
    std::vector<float> zeros(Size(n), 0.0F);
    for (size_t i = 0; i < zeros.size(); i += 2) zeros[i] = -0.0F;
    ExpectSameSoftmax(table(), zeros);
  }
}

TEST(SoftmaxReferenceTest, MeansWhatItSays) {
  const std::vector<float> scores = Random(40).Floats(200, 8.0F);
  const Softmax softmax = SoftmaxOf(kReferenceTable, scores);
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double exact = std::exp(double{scores[i] - softmax.state[0]});
    EXPECT_NEAR(softmax.numerators[i], exact, 3e-7 * exact);
    sum += exact;
  }
  EXPECT_NEAR(softmax.state[1], sum, 1e-6 * sum);
  EXPECT_EQ(softmax.state[2], -5.0F);  // the rest of the header is not its business
}

std::vector<float> State(float max, float sum, int head_dim, uint32_t seed) {
  std::vector<float> state = Random(seed).Floats(Size(kStateHeader + head_dim), 4.0F);
  state[0] = max;
  state[1] = sum;
  return state;
}

// Also where one of both is empty or outweighs the other, and where their maxima are equal or zeros of two
// signs.
TEST_P(AttentionTest, MergesStates) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int head_dim : kHeadDims) {
    for (const float m : {-infinity, -100.0F, -0.0F, 0.0F, 3.0F, 90.0F}) {
      for (const float mc : {-90.0F, -0.0F, 0.0F, 2.5F, 3.0F, 200.0F}) {
        std::vector<float> expected = State(m, 17.5F, head_dim, 41), actual = expected;
        const std::vector<float> chunk = State(mc, 3.75F, head_dim, 42);
        kReferenceTable.merge_state(expected.data(), chunk.data(), head_dim);
        table().merge_state(actual.data(), chunk.data(), head_dim);
        ASSERT_TRUE(SameBits(expected, actual)) << head_dim << " " << m << " " << mc;
      }
    }
  }
}

// A division by the sum, with the bits of the loop for large and tiny sums.
TEST_P(AttentionTest, FinishesStates) {
  for (const int head_dim : kHeadDims) {
    for (const float sum : {1.0F, 3.0F, 1e-30F, 7e5F}) {
      const std::vector<float> state = State(2.0F, sum, head_dim, 43);
      std::vector<float> expected(Size(head_dim)), actual(Size(head_dim));
      kReferenceTable.finish_state(state.data(), head_dim, expected.data());
      table().finish_state(state.data(), head_dim, actual.data());
      ASSERT_TRUE(SameBits(expected, actual)) << head_dim << " " << sum;
    }
  }
}

// Two chunks merged are the softmax of both.
TEST(MergeReferenceTest, IsTheSoftmaxOfBoth) {
  const Chunk chunk(KvType::kF32, 16, 1);
  const std::vector<float> all = Random(44).Floats(50, 6.0F);
  std::vector<float> merged;
  for (const auto& [begin, end] : {std::pair{0, 30}, {30, 50}}) {
    std::vector<float> state(kStateHeader + 16), p(all.begin() + begin, all.begin() + end);
    kReferenceTable.softmax_chunk(p.data(), end - begin, state.data());
    const int n_keys = end - begin;
    kReferenceTable.values({.values = chunk.values.data() + Size(begin * 16) * 4,
                            .p = p.data(),
                            .p_stride = kChunk,
                            .o = state.data() + kStateHeader,
                            .o_stride = 16,
                            .n_keys = &n_keys,
                            .n_rows = 1,
                            .head_dim = 16,
                            .type = KvType::kF32});
    if (merged.empty()) {
      merged = state;
    } else {
      kReferenceTable.merge_state(merged.data(), state.data(), 16);
    }
  }
  std::vector<float> out(16);
  kReferenceTable.finish_state(merged.data(), 16, out.data());
  for (int d = 0; d < 16; ++d) {
    double sum = 0, weighted = 0;
    for (int key = 0; key < 50; ++key) {
      float v;
      std::memcpy(&v, &chunk.values[Size(key * 16 + d) * 4], 4);
      sum += std::exp(double{all[Size(key)]});
      weighted += std::exp(double{all[Size(key)]}) * v;
    }
    EXPECT_NEAR(out[Size(d)], weighted / sum, 1e-6);
  }
}

}  // namespace
}  // namespace longspec::kernels::testing
