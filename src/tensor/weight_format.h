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
// (n_block, 16) f16. A weight is d * w (+ m).
//   kU4, kU4Min: 256 bytes a block; byte [64 j + 4 row + i] holds k = 4 j + i in its low and 16 + 4 j + i in
//   its high nibble.
//                w = nibble - 8 (kU4) or nibble (kU4Min).
//   kS8, kS8Min: 512 bytes a block; byte [64 j + 4 row + i] holds w + 128 for k = 4 j + i.
// Super-block formats, GGUF's K types: 8 blocks share f16 numbers D (and M), and each block has 8-bit factors
// of them; n_in is a multiple of 256. Per group: quants; D (n_super, 16) f16; for *Min, M likewise; then the
// factors of D and, for *Min, of M, (n_block, 16) u8 each, at most 63. A weight is (D * factor) * w (- M *
// factor).
//   kSuperU4Min: Q4_K; quants as kU4Min's.
//   kSuperU5Min: Q5_K; 512 bytes a block; byte [64 j + 4 row + i] holds w, at most 31, for k = 4 j + i.
//   kSuperU6Halves: Q6_K; bytes likewise hold w + 32, at most 63. Its factors are i8, and each half of a
//   block has its own: (n_block, 2, 16).
// Float formats, per group: (n_in, 16) values. kBF16Pairs and kBF16Amx are stored as kBF16 is, and multiplied
// in the arithmetics "bf16" and "bf16-amx", where kBF16 is in "f32".
enum class WeightFormat : uint8_t {
  kU4,
  kU4Min,
  kS8,
  kS8Min,
  kSuperU4Min,
  kSuperU5Min,
  kSuperU6Halves,
  kF32,
  kF16,
  kBF16,
  kBF16Pairs,
  kBF16Amx
};

struct WeightFormatInfo {
  const char* name;
  Arithmetic arithmetic;
  int bits;             // of a weight; those of 5 and 6 lie in bytes
  int offset = 0;       // what was added to w; of quantised formats
  bool minima = false;  // weights have minima beside scales
  bool halves = false;  // of super-blocks: each half of a block has a factor of its own
};

// In the order of WeightFormat.
inline constexpr WeightFormatInfo kWeightFormats[] = {
    {.name = "U4", .arithmetic = Arithmetic::kQ8, .bits = 4, .offset = 8},
    {.name = "U4Min", .arithmetic = Arithmetic::kQ8, .bits = 4, .minima = true},
    {.name = "S8", .arithmetic = Arithmetic::kQ8, .bits = 8, .offset = 128},
    {.name = "S8Min", .arithmetic = Arithmetic::kQ8, .bits = 8, .offset = 128, .minima = true},
    {.name = "SuperU4Min", .arithmetic = Arithmetic::kQ8K, .bits = 4, .minima = true},
    {.name = "SuperU5Min", .arithmetic = Arithmetic::kQ8K, .bits = 5, .minima = true},
    {.name = "SuperU6Halves", .arithmetic = Arithmetic::kQ8K, .bits = 6, .offset = 32, .halves = true},
    {.name = "F32", .arithmetic = Arithmetic::kF32, .bits = 32},
    {.name = "F16", .arithmetic = Arithmetic::kF32, .bits = 16},
    {.name = "BF16", .arithmetic = Arithmetic::kF32, .bits = 16},
    {.name = "BF16 in bf16", .arithmetic = Arithmetic::kBF16, .bits = 16},
    {.name = "BF16 in bf16-amx", .arithmetic = Arithmetic::kBF16Amx, .bits = 16},
};
inline constexpr int kWeightFormatCount = sizeof(kWeightFormats) / sizeof(kWeightFormats[0]);
static_assert(kWeightFormatCount == static_cast<int>(WeightFormat::kBF16Amx) + 1);

}  // namespace longspec
