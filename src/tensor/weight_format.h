// SPDX-License-Identifier: Apache-2.0
//
// How matrices lie in memory to be multiplied, and in what arithmetic they are: facts that kernels know when
// they are compiled. Data only: files built for different instruction sets include this.
#pragma once

#include <cstdint>

namespace longspec {

// What products are computed in (docs/arithmetic.md).
enum class Arithmetic : uint8_t { kF32, kQ8, kQ8K, kBF16, kBF16Amx };

// Packed matrices hold groups of 16 output rows (the last group is padded with zeros).
//
// Quantised formats, per group: quants of all k-blocks, then scales (n_block, 16) f16, then, for *Min, minima
// (n_block, 16) f16. A weight is d * w (+ m). Quants of 3, 4, 5, 6 and 8 bits take no more than these: a
// block is as many lines of 64 bytes, whose bits tensor/weight_lines.h gives to weights.
//   kU4, kU4Min: Q4_0, Q4_1; w + 8, or w.
//   kU5, kU5Min: Q5_0, Q5_1; w + 16, or w.
//   kS8: Q8_0; w + 128.
//   kU4Iq: IQ4_NL; codes of kIq4Values.
//   kU4Fp: MXFP4; codes of kFp4Values. Its scales are bytes, which stand for 2^(byte - 128).
// Super-block formats, GGUF's K types: 8 blocks share f16 numbers D (and M), and each block has 8-bit factors
// of them; n_in is a multiple of 256. Per group: quants; D (n_super, 16) f16; for *Min, M likewise; then the
// factors of D and, for *Min, of M, (n_block, 16) u8 each; without M factors are i8. A weight is (D * factor)
// * w (- M * factor).
//   kSuperU4Min: Q4_K; w.
//   kSuperU5Min: Q5_K; w.
//   kSuperU3Halves, kSuperU6Halves: Q3_K, Q6_K; w + 4, w + 32. Each half of a block has a factor of its own:
//   (n_block, 2, 16).
//   kSuperU4Iq: IQ4_XS; codes of kIq4Values.
// Float formats, per group: (n_in, 16) values. kBF16Pairs and kBF16Amx are stored as kBF16 is, and multiplied
// in the arithmetics "bf16" and "bf16-amx", where kBF16 is in "f32".
enum class WeightFormat : uint8_t {
  kU4,
  kU4Min,
  kU5,
  kU5Min,
  kS8,
  kU4Iq,
  kU4Fp,
  kSuperU4Min,
  kSuperU5Min,
  kSuperU3Halves,
  kSuperU6Halves,
  kSuperU4Iq,
  kF32,
  kF16,
  kBF16,
  kBF16Pairs,
  kBF16Amx
};

// What the codes of IQ4_NL and IQ4_XS stand for.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Twice the numbers of E2M1, floats of 4 bits, whose highest is the sign.
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct WeightFormatInfo {
  const char* name;
  Arithmetic arithmetic;
  int bits;             // of a weight
  int offset = 0;       // what is added to w to make it unsigned; of quantised formats
  bool minima = false;  // weights have minima beside scales
  bool halves = false;  // of super-blocks: each half of a block has a factor of its own
  int factors = 0;      // of super-blocks: they are below this, and those with a sign from minus this on
  const int8_t* values = nullptr;  // w of each code of 4 bits; null: codes are w + offset
  int scale_bytes = 2;             // of quantised formats: 2: f16; 1: the exponent of a power of two
};

// In the order of WeightFormat.
inline constexpr WeightFormatInfo kWeightFormats[] = {
    {.name = "U4", .arithmetic = Arithmetic::kQ8, .bits = 4, .offset = 8},
    {.name = "U4Min", .arithmetic = Arithmetic::kQ8, .bits = 4, .minima = true},
    {.name = "U5", .arithmetic = Arithmetic::kQ8, .bits = 5, .offset = 16},
    {.name = "U5Min", .arithmetic = Arithmetic::kQ8, .bits = 5, .minima = true},
    {.name = "S8", .arithmetic = Arithmetic::kQ8, .bits = 8, .offset = 128},
    {.name = "U4Iq", .arithmetic = Arithmetic::kQ8, .bits = 4, .offset = 128, .values = kIq4Values},
    {.name = "U4Fp",
     .arithmetic = Arithmetic::kQ8,
     .bits = 4,
     .offset = 16,
     .values = kFp4Values,
     .scale_bytes = 1},
    {.name = "SuperU4Min", .arithmetic = Arithmetic::kQ8K, .bits = 4, .minima = true, .factors = 64},
    {.name = "SuperU5Min", .arithmetic = Arithmetic::kQ8K, .bits = 5, .minima = true, .factors = 64},
    {.name = "SuperU3Halves",
     .arithmetic = Arithmetic::kQ8K,
     .bits = 3,
     .offset = 4,
     .halves = true,
     .factors = 32},
    {.name = "SuperU6Halves",
     .arithmetic = Arithmetic::kQ8K,
     .bits = 6,
     .offset = 32,
     .halves = true,
     .factors = 128},
    {.name = "SuperU4Iq",
     .arithmetic = Arithmetic::kQ8K,
     .bits = 4,
     .offset = 128,
     .factors = 32,
     .values = kIq4Values},
    {.name = "F32", .arithmetic = Arithmetic::kF32, .bits = 32},
    {.name = "F16", .arithmetic = Arithmetic::kF32, .bits = 16},
    {.name = "BF16", .arithmetic = Arithmetic::kF32, .bits = 16},
    {.name = "BF16 in bf16", .arithmetic = Arithmetic::kBF16, .bits = 16},
    {.name = "BF16 in bf16-amx", .arithmetic = Arithmetic::kBF16Amx, .bits = 16},
};
inline constexpr int kWeightFormatCount = sizeof(kWeightFormats) / sizeof(kWeightFormats[0]);
static_assert(kWeightFormatCount == static_cast<int>(WeightFormat::kBF16Amx) + 1);

}  // namespace longspec
