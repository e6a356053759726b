// SPDX-License-Identifier: Apache-2.0
//
// The types in blocks of 32: what each stores, as numbers, from numbers, and as integers.
#include <algorithm>
#include <cmath>

#include "tensor/block_type.h"
#include "tensor/half.h"
#include "tensor/stored_block.h"
#include "tensor/weight_types.h"

namespace longspec {
namespace {

// Blocks as they lie in files, little-endian; scales are IEEE halves. Nibble i of `qs` is the low half of
// byte i for i < 16, the high half of byte i - 16 otherwise; bit i of `qh` is the fifth bit. The formulas say
// what element i of a block is.

struct BlockQ4_0 {  // d * (q - 8)
  uint16_t d;
  uint8_t qs[16];
};

struct BlockQ4_1 {  // d * q + m
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};

struct BlockQ5_0 {  // d * (q - 16)
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ5_1 {  // d * q + m
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ8_0 {  // d * q
  uint16_t d;
  int8_t qs[32];
};

struct BlockIQ4_NL {  // d * kIq4Values[q]
  uint16_t d;
  uint8_t qs[16];
};

struct BlockMXFP4 {  // 2^(e - 128) * kFp4Values[q]
  uint8_t e;
  uint8_t qs[16];
};

static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockMXFP4) == 17);

// Every product below is exact in f32 up to the last operation (an 11-bit scale times small integers), so the
// value is the correctly rounded one whatever the order of the factors.
// Symmetric types reach one step further below zero than above, so their encoders make the largest element
// the lowest code.

int FifthBit(const uint8_t (&qh)[4], int i) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; }

void SetFifthBit(uint8_t (&qh)[4], int i, int q) { qh[i / 8] |= static_cast<uint8_t>((q >> 4) << (i % 8)); }

void TakeNibbles(const uint8_t (&qs)[16], uint8_t* quants) {
  for (int i = 0; i < 16; ++i) {
    quants[i] = qs[i] & 0xF;
    quants[i + 16] = qs[i] >> 4;
  }
}

void DecodeBlock(const BlockQ4_0& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>((b.qs[i] & 0xF) - 8) * d;
    dst[i + 16] = static_cast<float>((b.qs[i] >> 4) - 8) * d;
  }
}

void EncodeBlock(const float* src, BlockQ4_0* b) {
  const float d = StoreHalf(Extreme(src, 32) / -8, &b->d);
  for (int i = 0; i < 16; ++i)
    b->qs[i] = PairOfNibbles(RoundToStep(src[i], d, -8, 7) + 8, RoundToStep(src[i + 16], d, -8, 7) + 8);
}

void TakeApart(const BlockQ4_0& b, StoredBlock* out) {
  out->scale = b.d;
  TakeNibbles(b.qs, out->quants);
}

void DecodeBlock(const BlockQ4_1& b, float* dst) {
  const float d = HalfToFloat(b.d), m = HalfToFloat(b.m);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>(b.qs[i] & 0xF) * d + m;
    dst[i + 16] = static_cast<float>(b.qs[i] >> 4) * d + m;
  }
}

void EncodeBlock(const float* src, BlockQ4_1* b) {
  const auto [min, max] = std::minmax_element(src, src + 32);
  const float d = StoreHalf((*max - *min) / 15, &b->d), m = StoreHalf(*min, &b->m);
  for (int i = 0; i < 16; ++i)
    b->qs[i] = PairOfNibbles(RoundToStep(src[i] - m, d, 0, 15), RoundToStep(src[i + 16] - m, d, 0, 15));
}

void TakeApart(const BlockQ4_1& b, StoredBlock* out) {
  out->scale = b.d;
  out->minimum = b.m;
  TakeNibbles(b.qs, out->quants);
}

void DecodeBlock(const BlockQ5_0& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>(((b.qs[i] & 0xF) | FifthBit(b.qh, i)) - 16) * d;
    dst[i + 16] = static_cast<float>(((b.qs[i] >> 4) | FifthBit(b.qh, i + 16)) - 16) * d;
  }
}

void EncodeBlock(const float* src, BlockQ5_0* b) {
  const float d = StoreHalf(Extreme(src, 32) / -16, &b->d);
  for (int i = 0; i < 16; ++i) {
    const int low = RoundToStep(src[i], d, -16, 15) + 16, high = RoundToStep(src[i + 16], d, -16, 15) + 16;
    b->qs[i] = PairOfNibbles(low, high);
    SetFifthBit(b->qh, i, low);
    SetFifthBit(b->qh, i + 16, high);
  }
}

// Nibbles and their fifth bits.
template <typename Block>
void TakeFiveBits(const Block& b, uint8_t* quants) {
  TakeNibbles(b.qs, quants);
  for (int i = 0; i < 32; ++i) quants[i] = static_cast<uint8_t>(quants[i] | FifthBit(b.qh, i));
}

void TakeApart(const BlockQ5_0& b, StoredBlock* out) {
  out->scale = b.d;
  TakeFiveBits(b, out->quants);
}

void DecodeBlock(const BlockQ5_1& b, float* dst) {
  const float d = HalfToFloat(b.d), m = HalfToFloat(b.m);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>((b.qs[i] & 0xF) | FifthBit(b.qh, i)) * d + m;
    dst[i + 16] = static_cast<float>((b.qs[i] >> 4) | FifthBit(b.qh, i + 16)) * d + m;
  }
}

void EncodeBlock(const float* src, BlockQ5_1* b) {
  const auto [min, max] = std::minmax_element(src, src + 32);
  const float d = StoreHalf((*max - *min) / 31, &b->d), m = StoreHalf(*min, &b->m);
  for (int i = 0; i < 16; ++i) {
    const int low = RoundToStep(src[i] - m, d, 0, 31), high = RoundToStep(src[i + 16] - m, d, 0, 31);
    b->qs[i] = PairOfNibbles(low, high);
    SetFifthBit(b->qh, i, low);
    SetFifthBit(b->qh, i + 16, high);
  }
}

void TakeApart(const BlockQ5_1& b, StoredBlock* out) {
  out->scale = b.d;
  out->minimum = b.m;
  TakeFiveBits(b, out->quants);
}

void DecodeBlock(const BlockQ8_0& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(b.qs[i]) * d;
}

void EncodeBlock(const float* src, BlockQ8_0* b) {
  const float d = StoreHalf(std::abs(Extreme(src, 32)) / 127, &b->d);
  for (int i = 0; i < 32; ++i) b->qs[i] = static_cast<int8_t>(RoundToStep(src[i], d, -127, 127));
}

void TakeApart(const BlockQ8_0& b, StoredBlock* out) {
  out->scale = b.d;
  for (int i = 0; i < 32; ++i) out->quants[i] = static_cast<uint8_t>(b.qs[i] + 128);
}

void DecodeBlock(const BlockIQ4_NL& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 16; ++i) {
    dst[i] = d * static_cast<float>(kIq4Values[b.qs[i] & 0xF]);
    dst[i + 16] = d * static_cast<float>(kIq4Values[b.qs[i] >> 4]);
  }
}

void EncodeBlock(const float* src, BlockIQ4_NL* b) {
  const float d = StoreHalf(Extreme(src, 32) / -127, &b->d);
  for (int i = 0; i < 16; ++i) b->qs[i] = PairOfNibbles(NearestIq4(src[i], d), NearestIq4(src[i + 16], d));
}

void TakeApart(const BlockIQ4_NL& b, StoredBlock* out) {
  out->scale = b.d;
  TakeNibbles(b.qs, out->quants);
}

void DecodeBlock(const BlockMXFP4& b, float* dst) {
  const float d = std::ldexp(1.0F, b.e - 128);
  for (int i = 0; i < 16; ++i) {
    dst[i] = d * static_cast<float>(kFp4Values[b.qs[i] & 0xF]);
    dst[i + 16] = d * static_cast<float>(kFp4Values[b.qs[i] >> 4]);
  }
}

// The code that is nearest to x / d.
int NearestFp4(float x, float d) {
  const float wanted = std::abs(x / d);
  int code = 0;
  while (code < 7 && 2 * wanted > static_cast<float>(kFp4Values[code] + kFp4Values[code + 1])) ++code;
  return x < 0 ? code + 8 : code;
}

// The step is the least with which the largest element is at most 14, which becomes 12, as 13 would.
void EncodeBlock(const float* src, BlockMXFP4* b) {
  int exponent;
  const float most = std::abs(Extreme(src, 32)), fraction = std::frexp(most, &exponent);
  if (most > 0 && std::isfinite(most)) {
    const int step = fraction > 14.0F / 16 ? exponent - 3 : exponent - 4;
    b->e = static_cast<uint8_t>(std::clamp(step + 128, 0, 254));
  }
  const float d = std::ldexp(1.0F, b->e - 128);
  for (int i = 0; i < 16; ++i) b->qs[i] = PairOfNibbles(NearestFp4(src[i], d), NearestFp4(src[i + 16], d));
}

void TakeApart(const BlockMXFP4& b, StoredBlock* out) {
  out->scale = b.e;
  TakeNibbles(b.qs, out->quants);
}

}  // namespace

constinit const WeightTypeInfo kQ4_0Type = InBlocks<BlockQ4_0, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q4_0", .gguf_number = 2, .file_type = 2, .packed = WeightFormat::kU4});
constinit const WeightTypeInfo kQ4_1Type = InBlocks<BlockQ4_1, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q4_1", .gguf_number = 3, .file_type = 3, .packed = WeightFormat::kU4Min});
constinit const WeightTypeInfo kQ5_0Type = InBlocks<BlockQ5_0, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q5_0", .gguf_number = 6, .file_type = 8, .packed = WeightFormat::kU5});
constinit const WeightTypeInfo kQ5_1Type = InBlocks<BlockQ5_1, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q5_1", .gguf_number = 7, .file_type = 9, .packed = WeightFormat::kU5Min});
constinit const WeightTypeInfo kQ8_0Type = InBlocks<BlockQ8_0, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q8_0", .gguf_number = 8, .file_type = 7, .packed = WeightFormat::kS8});
constinit const WeightTypeInfo kIQ4_NLType = InBlocks<BlockIQ4_NL, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "IQ4_NL", .gguf_number = 20, .file_type = 25, .packed = WeightFormat::kU4Iq});
constinit const WeightTypeInfo kMXFP4Type = InBlocks<BlockMXFP4, 32, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "MXFP4", .gguf_number = 39, .file_type = 38, .packed = WeightFormat::kU4Fp});

}  // namespace longspec
