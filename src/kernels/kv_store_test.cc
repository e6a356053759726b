// SPDX-License-Identifier: Apache-2.0
//
// Keys and values as they are stored: every table against the reference, and the reference against ops.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kv_format.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/tables_under_test.h"
#include "tensor/half.h"

namespace longspec::kernels::testing {
namespace {

using StoreKvTest = TableTest;
LONGSPEC_FOR_TABLES(StoreKvTest, TablesThatDiffer(&KernelTable::store_kv));

struct Stored {
  std::vector<std::byte> keys, values;
};

Stored Store(const KernelTable& table, const std::vector<float>& k, const std::vector<float>& v, int offset,
             KvType k_type, KvType v_type) {
  const auto head_dim = static_cast<int>(k.size());
  Stored stored{std::vector<std::byte>(kChunk * FormatOf(k_type, head_dim).bytes(), std::byte{0xAB}),
                std::vector<std::byte>(kChunk * FormatOf(v_type, head_dim).bytes(), std::byte{0xCD})};
  table.store_kv({.k = k.data(),
                  .v = v.data(),
                  .keys = stored.keys.data(),
                  .values = stored.values.data(),
                  .offset = offset,
                  .head_dim = head_dim,
                  .k_type = k_type,
                  .v_type = v_type});
  return stored;
}

void ExpectSameStored(const KernelTable& table, const std::vector<float>& k, const std::vector<float>& v,
                      int offset) {
  for (const KvType k_type : kKvTypes) {
    for (const KvType v_type : kKvTypes) {
      if (k.size() % Size(std::max(KvMultiple(k_type), KvMultiple(v_type))) != 0) continue;
      const Stored expected = Store(kReferenceTable, k, v, offset, k_type, v_type);
      const Stored actual = Store(table, k, v, offset, k_type, v_type);
      ASSERT_EQ(expected.keys, actual.keys) << Name(k_type) << " " << offset;
      ASSERT_EQ(expected.values, actual.values) << Name(v_type) << " " << offset;
    }
  }
}

TEST_P(StoreKvTest, StoresEveryOffset) {
  for (const int head_dim : {16, 48, 64, 128}) {
    for (const int offset : {0, 1, 15, 16, 17, 100, 254, 255}) {
      ExpectSameStored(table(), Random(50).Floats(Size(head_dim), 3.0F),
                       Random(51).Floats(Size(head_dim), 3.0F), offset);
    }
  }
}

// All exponents, the halfway points of both 16-bit formats, overflow, denormals, infinities, NaNs with any
// payload.
TEST_P(StoreKvTest, StoresEveryKindOfNumber) {
  std::vector<uint32_t> bits;
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const uint32_t mantissa : {0U, 1U, 0xFFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U,
                                    0x18000U, 0x1FFFFFU, 0x400000U, 0x7FEFFFU, 0x7FF000U, 0x7FFFFFU}) {
      bits.push_back(exponent << 23 | mantissa);
      bits.push_back(1U << 31 | exponent << 23 | mantissa);
    }
  }
  Random random(52);
  while (bits.size() % 256 != 0) bits.push_back(random.Bits());
  for (size_t i = 0; i < bits.size(); i += 256) {
    std::vector<float> x(256);
    std::memcpy(x.data(), &bits[i], 256 * sizeof(float));
    ExpectSameStored(table(), x, x, 37);
  }
}

TEST(StoreReferenceTest, PutsKeysTransposedAndValuesInRows) {
  std::vector<float> k(16), v(16);
  for (int d = 0; d < 16; ++d) {
    k[Size(d)] = static_cast<float>(d);
    v[Size(d)] = static_cast<float>(100 + d);
  }
  const Stored stored = Store(kReferenceTable, k, v, 21, KvType::kF16, KvType::kF32);
  for (int d = 0; d < 16; ++d) {
    uint16_t h;
    std::memcpy(&h, &stored.keys[Size((1 * 16 + d) * 16 + 5) * 2], 2);
    EXPECT_EQ(HalfToFloat(h), static_cast<float>(d));
    float f;
    std::memcpy(&f, &stored.values[Size(21 * 16 + d) * 4], 4);
    EXPECT_EQ(f, static_cast<float>(100 + d));
  }
}

uint16_t HalfAt(const std::vector<std::byte>& bytes, size_t at) {
  uint16_t h;
  std::memcpy(&h, &bytes[at], sizeof(h));
  return h;
}

int ByteAt(const std::vector<std::byte>& bytes, size_t at) { return static_cast<int>(bytes[at]); }

Stored StoreReference(const std::vector<float>& x, int offset, KvType type) {
  return Store(kReferenceTable, x, x, offset, type, type);
}

// The nibble of value d of a head of 64, where ops.h says it lies.
int KeyNibble(const Stored& stored, int offset, size_t d) {
  const int pair = ByteAt(stored.keys, Size(offset / 16) * 16 * 36 + d / 2 * 16 + Size(offset % 16));
  return d % 2 == 0 ? pair & 15 : pair >> 4;
}

int ValueNibble(const Stored& stored, int offset, size_t d) {
  const int pair = ByteAt(stored.values, Size(offset) * 36 + d / 32 * 16 + d % 16);
  return d % 32 < 16 ? pair & 15 : pair >> 4;
}

TEST(StoreReferenceTest, Q8IsWhatItSays) {
  std::vector<float> x(64);
  for (size_t d = 0; d < 64; ++d)
    x[d] = d < 32 ? static_cast<float>(d) - 16.0F : static_cast<float>(d) * 0.5F;
  x[3] = -127.0F;  // scale 1
  x[40] = 254.0F;  // scale 2: halves of odd numbers, and quarters, lie between codes
  x[41] = 5.0F;
  x[42] = 3.0F;
  x[43] = -3.0F;
  for (const int offset : {0, 21, 255}) {
    const Stored stored = StoreReference(x, offset, KvType::kQ8_0);
    const size_t block = Size(offset / 16) * 16 * 68, lane = Size(offset % 16), row = Size(offset) * 68;
    EXPECT_EQ(HalfAt(stored.keys, block + 64 * 16 + lane * 2), FloatToHalf(1.0F));
    EXPECT_EQ(HalfAt(stored.keys, block + 64 * 16 + 32 + lane * 2), FloatToHalf(2.0F));
    EXPECT_EQ(HalfAt(stored.values, row + 64), FloatToHalf(1.0F));
    EXPECT_EQ(HalfAt(stored.values, row + 66), FloatToHalf(2.0F));
    for (size_t d = 0; d < 64; ++d) {
      const double expected = d < 32 ? double{x[d]} : std::nearbyint(double{x[d]} / 2);
      EXPECT_EQ(static_cast<int8_t>(stored.keys[block + d * 16 + lane]), expected) << d;
      EXPECT_EQ(static_cast<int8_t>(stored.values[row + d]), expected) << d;
    }
    EXPECT_EQ(static_cast<int8_t>(stored.values[row + 41]), 2);   // 2.5
    EXPECT_EQ(static_cast<int8_t>(stored.values[row + 42]), 2);   // 1.5
    EXPECT_EQ(static_cast<int8_t>(stored.values[row + 43]), -2);  // -1.5
  }
}

TEST(StoreReferenceTest, Q4IsWhatItSays) {
  std::vector<float> x(64);
  for (size_t d = 0; d < 64; ++d) x[d] = static_cast<float>(d % 16) - 8.0F;  // scale 1
  for (size_t d = 32; d < 64; ++d) x[d] = static_cast<float>(d % 8) - 3.0F;
  x[50] = 16.0F;   // scale -2: the first of the largest decides
  x[51] = -16.0F;  // would be nibble 16
  x[52] = 13.0F;   // -6.5: half up
  x[53] = -1.0F;   // 0.5
  for (const int offset : {0, 21, 255}) {
    const Stored stored = StoreReference(x, offset, KvType::kQ4_0);
    const size_t scales = Size(offset / 16) * 16 * 36 + 32 * 16 + Size(offset % 16) * 2;
    EXPECT_EQ(HalfAt(stored.keys, scales), FloatToHalf(1.0F));
    EXPECT_EQ(HalfAt(stored.keys, scales + 32), FloatToHalf(-2.0F));
    EXPECT_EQ(HalfAt(stored.values, Size(offset) * 36 + 32), FloatToHalf(1.0F));
    EXPECT_EQ(HalfAt(stored.values, Size(offset) * 36 + 34), FloatToHalf(-2.0F));
    for (size_t d = 0; d < 64; ++d) {
      const double scaled = d < 32 ? double{x[d]} : double{x[d]} / -2;
      const int expected = std::min(15, static_cast<int>(scaled + 8.5));
      EXPECT_EQ(KeyNibble(stored, offset, d), expected) << d;
      EXPECT_EQ(ValueNibble(stored, offset, d), expected) << d;
    }
    EXPECT_EQ(KeyNibble(stored, offset, 51), 15);
    EXPECT_EQ(KeyNibble(stored, offset, 52), 2);
    EXPECT_EQ(KeyNibble(stored, offset, 53), 9);
  }
}

TEST(StoreReferenceTest, QuantisedElementsAreNearWhatWasStored) {
  for (const KvType type : kKvTypes) {
    const std::vector<float> k = Random(60).Floats(96, 3.0F), v = Random(61).Floats(96, 3.0F);
    for (const int offset : {0, 9, 100, 255}) {
      const Stored stored = Store(kReferenceTable, k, v, offset, type, type);
      const std::byte* row = stored.values.data() + Size(offset) * FormatOf(type, 96).bytes();
      // Half a step and the rounding of the scale; q4_0 clips by one step on one side.
      const float part = type == KvType::kQ4_0 ? 1.0F / 7.9F : IsQuantized(type) ? 1.0F / 225 : 1.0F / 256;
      for (int d = 0; d < 96; ++d) {
        const auto largest = [&](const std::vector<float>& x) {
          float most = 0;
          for (int i = d / 32 * 32; i < d / 32 * 32 + 32; ++i) most = std::max(most, std::fabs(x[Size(i)]));
          return most;
        };
        EXPECT_NEAR(KeyElement(type, 96, stored.keys.data(), offset, d), k[Size(d)], part * largest(k))
            << Name(type);
        EXPECT_NEAR(ValueElement(type, 96, row, d), v[Size(d)], part * largest(v)) << Name(type);
      }
    }
  }
}

TEST(StoreReferenceTest, ZeroAndNonFiniteBlocks) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    float value;
    uint16_t scale;
  };
  // 1e-7 / 127 is less than half of the least f16; 1e9 / 127 more than the largest.
  const Case cases[] = {{0.0F, 0},          {-0.0F, 0},          {1e-7F, 0},    {1e-40F, 0},
                        {infinity, 0x7E00}, {-infinity, 0x7E00}, {nan, 0x7E00}, {1e9F, 0x7E00}};
  for (const Case& c : cases) {
    std::vector<float> x(32, 0.0F);
    x[7] = c.value;
    const Stored q8 = StoreReference(x, 0, KvType::kQ8_0), q4 = StoreReference(x, 0, KvType::kQ4_0);
    EXPECT_EQ(HalfAt(q8.values, 32), c.scale) << c.value;
    EXPECT_EQ(HalfAt(q4.values, 16), c.scale) << c.value;
    EXPECT_EQ(HalfAt(q8.keys, 32 * 16), c.scale) << c.value;
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(ByteAt(q8.values, i), 0) << c.value;
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(ByteAt(q4.values, i), 0x88) << c.value;
    const float element = ValueElement(KvType::kQ8_0, 32, q8.values.data(), 7);
    EXPECT_EQ(std::isnan(element), c.scale != 0) << c.value;
  }
}

// A neighbour's bytes are its own: threads store positions of one block at a time.
TEST_P(StoreKvTest, StoresTouchOnePositionOnly) {
  for (const KvType type : kKvTypes) {
    const std::vector<float> a = Random(62).Floats(64), b = Random(63).Floats(64);
    Stored together = Store(table(), a, a, 17, type, type);
    StoreKvArgs args{.k = b.data(),
                     .v = b.data(),
                     .keys = together.keys.data(),
                     .values = together.values.data(),
                     .offset = 18,
                     .head_dim = 64,
                     .k_type = type,
                     .v_type = type};
    table().store_kv(args);
    args.k = args.v = a.data();
    args.offset = 17;
    const Stored before = together;
    table().store_kv(args);
    EXPECT_EQ(before.keys, together.keys) << Name(type);
    EXPECT_EQ(before.values, together.values) << Name(type);
    size_t shared = 0;  // bytes that both have written
    const Stored alone_a = Store(table(), a, a, 17, type, type),
                 alone_b = Store(table(), b, b, 18, type, type);
    for (size_t i = 0; i < together.keys.size(); ++i) {
      const bool in_a = alone_a.keys[i] != std::byte{0xAB}, in_b = alone_b.keys[i] != std::byte{0xAB};
      shared += in_a && in_b ? 1 : 0;
    }
    EXPECT_EQ(shared, 0U) << Name(type);
  }
}

}  // namespace
}  // namespace longspec::kernels::testing
