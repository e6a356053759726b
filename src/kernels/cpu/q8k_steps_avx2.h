// SPDX-License-Identifier: Apache-2.0
//
// How a super-block of activations is divided into steps in arithmetic "q8k". Everything lives in an unnamed
// namespace: only files built with AVX2 may include this.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline int32_t LargestOf(__m256i v) {
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}

// Of 256 values what those of each block of 32 are multiplied with; d and steps go to `out`. False: they are
// not all finite.
inline bool SetSteps(const float* x, Q8KBlock& out, float (&inverse)[8]) {
  // Magnitudes as integers: their order is that of the numbers, then infinity, then NaN.
  alignas(32) int32_t of_block[8];
  for (int i = 0; i < 8; ++i, x += kQuantBlock) {
    __m256i most = _mm256_setzero_si256();
    for (int v = 0; v < 4; ++v) {
      const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * v));
      most = _mm256_max_epi32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
    }
    of_block[i] = LargestOf(most);
  }
  const __m256i largest = _mm256_load_si256(reinterpret_cast<const __m256i*>(of_block));
  const int32_t bits = LargestOf(largest);
  if (bits > 0x7F7FFFFF) return false;
  float most;
  std::memcpy(&most, &bits, sizeof(most));
  const bool tiny = most < 0x1.0p-116F;
  const __m256 steps_of_one = _mm256_set1_ps(tiny ? 0.0F : 8.0F / most);
  const __m256 whole = _mm256_ceil_ps(_mm256_mul_ps(_mm256_castsi256_ps(largest), steps_of_one));
  const __m256 steps = _mm256_min_ps(_mm256_max_ps(whole, _mm256_set1_ps(1.0F)), _mm256_set1_ps(8.0F));
  _mm256_storeu_ps(inverse, _mm256_div_ps(_mm256_set1_ps(tiny ? 0.0F : 1016.0F / most), steps));
  const __m256i wide = _mm256_cvtps_epi32(steps);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.steps), _mm_packus_epi16(words, words));
  out.d = most / 1016.0F;
  for (uint8_t& blocks : out.wide) blocks = 0;
  out.unused = 0;
  return true;
}

// Of block b: the sums of the halves' q, and of their magnitudes.
inline void SetBlockSums(int b, const int32_t (&sums)[2], const int32_t (&magnitudes)[2], Q8KBlock& out) {
  const int steps = out.steps[b];
  out.half_sums[2 * b] = static_cast<int16_t>(steps * sums[0]);
  out.half_sums[2 * b + 1] = static_cast<int16_t>(steps * sums[1]);
  out.block_sums[b] = static_cast<int16_t>(steps * (sums[0] + sums[1]));
  SetWide(b, magnitudes, sums[0] + sums[1], out.wide);
}

}  // namespace
}  // namespace longspec::kernels
