// SPDX-License-Identifier: Apache-2.0
//
// The K types, in blocks of 256: what each stores, as numbers, from numbers, and as integers.
#include <algorithm>
#include <cmath>

#include "tensor/block_type.h"
#include "tensor/half.h"
#include "tensor/scale_min.h"
#include "tensor/stored_block.h"
#include "tensor/weight_types.h"

namespace longspec {
namespace {

// Blocks as they lie in files, little-endian; scales are IEEE halves. The formulas say what element i of a
// block is. Types with minima have 8 sub-blocks of 32 with a 6-bit scale and a 6-bit minimum each, packed in
// `scales` (see UnpackScaleMin). Of each 64 elements, 32 bytes of `qs` hold the first 32 in their low nibbles
// and the others in their high nibbles.

// Two halves of 128 elements, each four groups of 32: element l of group g has the low 2 bits at bit 2 * g of
// qs[32 * half + l] and the high one at bit 4 * half + g of hmask[l]. 16 sub-blocks of 16 have a 6-bit scale
// each, whose low 4 bits are a nibble of scales[s % 8] and whose high 2 bits are at bit 2 * (s / 4) of
// scales[8 + s % 4].
struct BlockQ3_K {  // (d * (scale - 32)) * (q - 4)
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};

// Sub-blocks of 32 have a 6-bit scale each: its low 4 bits are nibble s of scales_l, its high 2 bits are bits
// 2 * s and 2 * s + 1 of scales_h. Of each 32 elements, 16 bytes of qs hold the first 16 in their low nibbles
// and the others in their high nibbles.
struct BlockIQ4_XS {  // (d * (scale - 32)) * kIq4Values[q]
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

struct BlockQ4_K {  // (d * scale) * q - dmin * min
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

struct BlockQ5_K {  // as Q4_K; bit s of qh[i % 32] is the fifth bit of element i of sub-block s
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// Two halves of 128 elements, each four groups of 32: element l of group g has the low 4 bits in nibble g / 2
// of ql[32 * (g % 2) + l] and the high 2 bits at bit 2 * g of qh[l]. 16 sub-blocks of 16 have a signed scale
// each.
struct BlockQ6_K {  // (d * scale) * (q - 32)
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

static_assert(sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);

// Every product below is exact in f32 up to the last operation (an 11-bit scale times small integers), so the
// value is the correctly rounded one whatever the order of the factors.

int Nibble(const uint8_t (&qs)[128], int sub_block, int l) {
  const uint8_t byte = qs[32 * (sub_block / 2) + l];
  return sub_block % 2 == 0 ? byte & 0xF : byte >> 4;
}

// The scale of sub-block s of 16.
int ScaleOf(const BlockQ3_K& b, int s) {
  const int low = s < 8 ? b.scales[s] & 0xF : b.scales[s - 8] >> 4;
  return (low | (b.scales[8 + s % 4] >> (2 * (s / 4)) & 3) << 4) - 32;
}

// The code of element i.
int ThreeBits(const BlockQ3_K& b, int i) {
  const int half = i / 128, group = i / 32 % 4, l = i % 32;
  return (b.qs[32 * half + l] >> (2 * group) & 3) | (b.hmask[l] >> (4 * half + group) & 1) << 2;
}

void DecodeBlock(const BlockQ3_K& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 256; ++i)
    dst[i] = d * static_cast<float>(ScaleOf(b, i / 16)) * static_cast<float>(ThreeBits(b, i) - 4);
}

void EncodeBlock(const float* src, BlockQ3_K* b) {
  float steps[16];
  for (int s = 0; s < 16; ++s) steps[s] = Extreme(src + 16 * s, 16) / -4;
  const float d = StoreHalf(Extreme(steps, 16) / -32, &b->d);
  for (int s = 0; s < 16; ++s) {
    const int scale = RoundToStep(steps[s], d, -32, 31) + 32;
    b->scales[s % 8] |= static_cast<uint8_t>((scale & 0xF) << (4 * (s / 8)));
    b->scales[8 + s % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (s / 4)));
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, group = i / 32 % 4, l = i % 32;
    const int q = RoundToStep(src[i], d * static_cast<float>(ScaleOf(*b, i / 16)), -4, 3) + 4;
    b->qs[32 * half + l] |= static_cast<uint8_t>((q & 3) << (2 * group));
    b->hmask[l] |= static_cast<uint8_t>((q >> 2) << (4 * half + group));
  }
}

void TakeApart(const BlockQ3_K& b, StoredBlock* out) {
  out->scale = b.d;
  for (int s = 0; s < 16; ++s) out->factors[s / 2][s % 2] = static_cast<uint8_t>(ScaleOf(b, s));
  for (int i = 0; i < 256; ++i) out->quants[i] = static_cast<uint8_t>(ThreeBits(b, i));
}

// The scale of sub-block s of 8.
int ScaleOf(const BlockIQ4_XS& b, int s) {
  return ((b.scales_l[s / 2] >> (4 * (s % 2)) & 0xF) | (b.scales_h >> (2 * s) & 3) << 4) - 32;
}

// The code of element l of sub-block s.
int CodeOf(const BlockIQ4_XS& b, int s, int l) { return b.qs[16 * s + l % 16] >> (l < 16 ? 0 : 4) & 0xF; }

void DecodeBlock(const BlockIQ4_XS& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(ScaleOf(b, s));
    for (int l = 0; l < 32; ++l) dst[32 * s + l] = scale * static_cast<float>(kIq4Values[CodeOf(b, s, l)]);
  }
}

void EncodeBlock(const float* src, BlockIQ4_XS* b) {
  float steps[8];
  for (int s = 0; s < 8; ++s) steps[s] = Extreme(src + 32 * s, 32) / -127;
  const float d = StoreHalf(Extreme(steps, 8) / -32, &b->d);
  for (int s = 0; s < 8; ++s) {
    const int scale = RoundToStep(steps[s], d, -32, 31) + 32;
    b->scales_l[s / 2] |= static_cast<uint8_t>((scale & 0xF) << (4 * (s % 2)));
    b->scales_h |= static_cast<uint16_t>((scale >> 4) << (2 * s));
    const float step = d * static_cast<float>(scale - 32);
    for (int l = 0; l < 16; ++l) {
      const float *low = src + 32 * s + l, *high = low + 16;
      b->qs[16 * s + l] = PairOfNibbles(NearestIq4(*low, step), NearestIq4(*high, step));
    }
  }
}

void TakeApart(const BlockIQ4_XS& b, StoredBlock* out) {
  out->scale = b.d;
  for (int s = 0; s < 8; ++s) {
    out->factors[s][0] = static_cast<uint8_t>(ScaleOf(b, s));
    for (int l = 0; l < 16; ++l) out->quants[32 * s + l] = b.qs[16 * s + l] & 0xF;
    for (int l = 0; l < 16; ++l) out->quants[32 * s + 16 + l] = b.qs[16 * s + l] >> 4;
  }
}

// Chooses d, dmin and the packed scales of a K block with minima, and the codes q (256) in [0, max_code].
template <typename Block>
void EncodeScaleMins(const float* src, int max_code, Block* b, int* q) {
  float scales[8], mins[8];
  for (int s = 0; s < 8; ++s) {
    const auto [min, max] = std::minmax_element(src + 32 * s, src + 32 * (s + 1));
    mins[s] = std::max(-*min, 0.0F);
    scales[s] = std::max(*max + mins[s], 0.0F) / static_cast<float>(max_code);
  }
  const float d = StoreHalf(*std::max_element(scales, scales + 8) / 63, &b->d);
  const float dmin = StoreHalf(*std::max_element(mins, mins + 8) / 63, &b->dmin);
  ScaleMin pairs[8];
  for (int s = 0; s < 8; ++s) {
    pairs[s] = {RoundToStep(scales[s], d, 0, 63), RoundToStep(mins[s], dmin, 0, 63)};
    const float step = d * static_cast<float>(pairs[s].scale), min = dmin * static_cast<float>(pairs[s].min);
    for (int i = 32 * s; i < 32 * (s + 1); ++i) q[i] = RoundToStep(src[i] + min, step, 0, max_code);
  }
  PackScaleMins(pairs, b->scales);
}

void PackNibbles(const int* q, uint8_t (&qs)[128]) {
  for (int i = 0; i < 128; ++i)
    qs[i] = PairOfNibbles(q[64 * (i / 32) + i % 32], q[64 * (i / 32) + 32 + i % 32]);
}

template <typename Block>
void TakeScaleMins(const Block& b, StoredBlock* out) {
  out->scale = b.d;
  out->minimum = b.dmin;
  for (int s = 0; s < 8; ++s) {
    const ScaleMin pair = UnpackScaleMin(b.scales, s);
    out->factors[s][0] = static_cast<uint8_t>(pair.scale);
    out->minimum_factors[s] = static_cast<uint8_t>(pair.min);
  }
}

void DecodeBlock(const BlockQ4_K& b, float* dst) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin packed = UnpackScaleMin(b.scales, s);
    const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
    for (int l = 0; l < 32; ++l) dst[32 * s + l] = scale * static_cast<float>(Nibble(b.qs, s, l)) - min;
  }
}

void EncodeBlock(const float* src, BlockQ4_K* b) {
  int q[256];
  EncodeScaleMins(src, 15, b, q);
  PackNibbles(q, b->qs);
}

// A loading program takes every block apart: loops of 32 bytes without a question inside, which become
// vectors.
void TakeNibbles(const uint8_t (&qs)[128], uint8_t* quants) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) quants[64 * pair + l] = qs[32 * pair + l] & 0xF;
    for (int l = 0; l < 32; ++l) quants[64 * pair + 32 + l] = qs[32 * pair + l] >> 4;
  }
}

void TakeApart(const BlockQ4_K& b, StoredBlock* out) {
  TakeScaleMins(b, out);
  TakeNibbles(b.qs, out->quants);
}

void DecodeBlock(const BlockQ5_K& b, float* dst) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin packed = UnpackScaleMin(b.scales, s);
    const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
    for (int l = 0; l < 32; ++l) {
      const int q = Nibble(b.qs, s, l) | (((b.qh[l] >> s) & 1) << 4);
      dst[32 * s + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void EncodeBlock(const float* src, BlockQ5_K* b) {
  int q[256];
  EncodeScaleMins(src, 31, b, q);
  PackNibbles(q, b->qs);
  for (int i = 0; i < 256; ++i) b->qh[i % 32] |= static_cast<uint8_t>((q[i] >> 4) << (i / 32));
}

void TakeApart(const BlockQ5_K& b, StoredBlock* out) {
  TakeScaleMins(b, out);
  TakeNibbles(b.qs, out->quants);
  for (int s = 0; s < 8; ++s) {
    for (int l = 0; l < 32; ++l) out->quants[32 * s + l] |= static_cast<uint8_t>((b.qh[l] >> s & 1) << 4);
  }
}

// The code of element i.
int SixBits(const BlockQ6_K& b, int i) {
  const int half = i / 128, group = i / 32 % 4, l = i % 32;
  const int low = (b.ql[64 * half + 32 * (group % 2) + l] >> (4 * (group / 2))) & 0xF;
  const int high = (b.qh[32 * half + l] >> (2 * group)) & 3;
  return low | (high << 4);
}

void DecodeBlock(const BlockQ6_K& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(b.scales[i / 16]);
    dst[i] = scale * static_cast<float>(SixBits(b, i) - 32);
  }
}

void EncodeBlock(const float* src, BlockQ6_K* b) {
  float scales[16];
  for (int s = 0; s < 16; ++s) scales[s] = Extreme(src + 16 * s, 16) / -32;
  const float d = StoreHalf(Extreme(scales, 16) / -128, &b->d);
  for (int s = 0; s < 16; ++s) b->scales[s] = static_cast<int8_t>(RoundToStep(scales[s], d, -128, 127));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, group = i / 32 % 4, l = i % 32;
    const int q = RoundToStep(src[i], d * static_cast<float>(b->scales[i / 16]), -32, 31) + 32;
    b->ql[64 * half + 32 * (group % 2) + l] |= static_cast<uint8_t>((q & 0xF) << (4 * (group / 2)));
    b->qh[32 * half + l] |= static_cast<uint8_t>((q >> 4) << (2 * group));
  }
}

void TakeApart(const BlockQ6_K& b, StoredBlock* out) {
  out->scale = b.d;
  for (int h = 0; h < 16; ++h) out->factors[h / 2][h % 2] = static_cast<uint8_t>(b.scales[h]);
  for (int of_32 = 0; of_32 < 8; ++of_32) {
    const int half = of_32 / 4, group = of_32 % 4;
    const uint8_t* low = b.ql + 64 * half + 32 * (group % 2);
    const uint8_t* high = b.qh + 32 * half;
    for (int l = 0; l < 32; ++l) {
      out->quants[32 * of_32 + l] =
          static_cast<uint8_t>((low[l] >> (4 * (group / 2)) & 0xF) | (high[l] >> (2 * group) & 3) << 4);
    }
  }
}

}  // namespace

constinit const WeightTypeInfo kQ3_KType = InBlocks<BlockQ3_K, 256, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q3_K", .gguf_number = 11, .file_type = 11, .packed = WeightFormat::kSuperU3Halves});
constinit const WeightTypeInfo kIQ4_XSType = InBlocks<BlockIQ4_XS, 256, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "IQ4_XS", .gguf_number = 23, .file_type = 30, .packed = WeightFormat::kSuperU4Iq});
constinit const WeightTypeInfo kQ4_KType = InBlocks<BlockQ4_K, 256, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q4_K", .gguf_number = 12, .file_type = 14, .packed = WeightFormat::kSuperU4Min});
constinit const WeightTypeInfo kQ5_KType = InBlocks<BlockQ5_K, 256, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q5_K", .gguf_number = 13, .file_type = 16, .packed = WeightFormat::kSuperU5Min});
constinit const WeightTypeInfo kQ6_KType = InBlocks<BlockQ6_K, 256, DecodeBlock, EncodeBlock, TakeApart>(
    {.name = "Q6_K", .gguf_number = 14, .file_type = 18, .packed = WeightFormat::kSuperU6Halves});

}  // namespace longspec
