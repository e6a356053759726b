// SPDX-License-Identifier: Apache-2.0
//
// Rounding keys and values to the quantised types, with AVX2 and F16C: a position has too few for wider
// registers to gain anything. Everything lives in an unnamed namespace on purpose: each file that includes
// this, after its intrinsics, gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kv_quantize.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// The first value of the largest magnitude; a NaN is larger than any number.
inline float LargestOf(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i part[4];
  for (int i = 0; i < 4; ++i) {
    part[i] = _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * i)), magnitude);
  }
  const __m256i eight =
      _mm256_max_epi32(_mm256_max_epi32(part[0], part[1]), _mm256_max_epi32(part[2], part[3]));
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1));
  const __m256i all = _mm256_broadcastd_epi32(most);
  uint32_t equal = 0;
  for (int i = 0; i < 4; ++i) {
    const __m256 same = _mm256_castsi256_ps(_mm256_cmpeq_epi32(part[i], all));
    equal |= static_cast<uint32_t>(_mm256_movemask_ps(same)) << (8 * i);
  }
  return x[__builtin_ctz(equal)];
}

template <KvType T>
inline QuantizedKv QuantizeKv(const float* x) {
  const float m = LargestOf(x);
  const float s = T == KvType::kQ8_0 ? __builtin_fabsf(m) / 127.0F : m / -8.0F;
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const auto h = static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(s), kNearest)));
  QuantizedKv block;
  const bool zero = (h & 0x7FFF) == 0, infinite = (h & 0x7C00) == 0x7C00;
  if (zero || infinite) {
    block.d = zero ? 0 : 0x7E00;
    std::memset(block.q, T == KvType::kQ8_0 ? 0 : 8, sizeof(block.q));
    return block;
  }
  block.d = h;
  const __m256 inverse = _mm256_set1_ps(1.0F / s);
  for (int i = 0; i < kQuantBlock; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), inverse);
    __m256i q;
    if constexpr (T == KvType::kQ8_0) {
      q = _mm256_cvtps_epi32(scaled);
    } else {
      q = _mm256_min_epi32(_mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_set1_ps(8.5F))),
                           _mm256_set1_epi32(15));
    }
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(block.q + i), _mm_packs_epi16(words, words));
  }
  return block;
}

}  // namespace
}  // namespace longspec::kernels
