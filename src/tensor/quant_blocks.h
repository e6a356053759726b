// SPDX-License-Identifier: Apache-2.0
//
// Layouts of the quantised blocks of GGUF files, as they lie in memory (little-endian). Scales are IEEE
// halves. The formulas say what element i of a block is; DequantizeRow is their exact evaluation.
#pragma once

#include <cstdint>

namespace longspec {

// Blocks of 32. Nibble i of `qs` is the low half of byte i for i < 16, the high half of byte i - 16
// otherwise; bit i of `qh` (little-endian) is the fifth bit.

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

// Blocks of 256. The K types with minima have 8 sub-blocks of 32 with a 6-bit scale and a 6-bit minimum each,
// packed in `scales` (see UnpackScaleMin). Of each 64 elements, 32 bytes of `qs` hold the first 32 in their
// low nibbles and the others in their high nibbles.

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

static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);

struct ScaleMin {
  int scale;  // 0..63
  int min;    // 0..63
};

// Scale and minimum of sub-block s of a Q4_K or Q5_K block. The first four pairs lie in the low six bits of
// bytes 0..7; the last four have their low nibbles in bytes 8..11 and borrow the top two bits of bytes 0..7.
inline ScaleMin UnpackScaleMin(const uint8_t (&packed)[12], int s) {
  if (s < 4) return {packed[s] & 63, packed[s + 4] & 63};
  return {(packed[s + 4] & 0xF) | ((packed[s - 4] >> 6) << 4),
          (packed[s + 4] >> 4) | ((packed[s] >> 6) << 4)};
}

// The inverse, for all eight sub-blocks.
inline void PackScaleMins(const ScaleMin (&pairs)[8], uint8_t (&packed)[12]) {
  for (int s = 0; s < 4; ++s) {
    const ScaleMin& low = pairs[s];
    const ScaleMin& high = pairs[s + 4];
    packed[s] = static_cast<uint8_t>(low.scale | ((high.scale >> 4) << 6));
    packed[s + 4] = static_cast<uint8_t>(low.min | ((high.min >> 4) << 6));
    packed[s + 8] = static_cast<uint8_t>((high.scale & 0xF) | ((high.min & 0xF) << 4));
  }
}

}  // namespace longspec
