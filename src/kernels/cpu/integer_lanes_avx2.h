// SPDX-License-Identifier: Apache-2.0
//
// What arithmetic "i8" (integer_attention.h) makes of 32 numbers with AVX2 and F16C. Everything lives in an
// unnamed namespace on purpose: each file that includes this, after its intrinsics, gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/integer_attention.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

struct IntegerLanesAvx2 {
  template <int N>
  static void LoadScales(const std::byte* const (&rows)[kQuantBlock], int at, float (*scales)[kQuantBlock]) {
#pragma GCC unroll 1
    for (int key = 0; key < kQuantBlock; key += 8) {
      __m128i of_key[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        uint64_t halves = 0;
        std::memcpy(&halves, rows[key + i] + at, 2 * N);
        of_key[i] = _mm_cvtsi64_si128(static_cast<int64_t>(halves));
      }
      // Of two, of four and of eight keys.
      __m128i two[4], first[2], second[2];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) two[i] = _mm_unpacklo_epi16(of_key[2 * i], of_key[2 * i + 1]);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        first[i] = _mm_unpacklo_epi32(two[2 * i], two[2 * i + 1]);
        second[i] = _mm_unpackhi_epi32(two[2 * i], two[2 * i + 1]);
      }
      const __m128i eight[4] = {
          _mm_unpacklo_epi64(first[0], first[1]), _mm_unpackhi_epi64(first[0], first[1]),
          _mm_unpacklo_epi64(second[0], second[1]), _mm_unpackhi_epi64(second[0], second[1])};
#pragma GCC unroll 4
      for (int g = 0; g < N; ++g) _mm256_store_ps(scales[g] + key, _mm256_cvtph_ps(eight[g]));
    }
  }

  // Of each four keys the values of a dimension lie together: (8, 32 dimensions, 4).
  static void Interleave(const std::byte* const (&rows)[kQuantBlock], int dims, int8_t* values) {
#pragma GCC unroll 1  // else all rows' addresses are moved about
    for (int key = 0; key < kQuantBlock; key += 4, values += 4 * kQuantBlock) {
      __m256i v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        v[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[key + i] + dims));
      const __m256i low01 = _mm256_unpacklo_epi8(v[0], v[1]), high01 = _mm256_unpackhi_epi8(v[0], v[1]);
      const __m256i low23 = _mm256_unpacklo_epi8(v[2], v[3]), high23 = _mm256_unpackhi_epi8(v[2], v[3]);
      // Of dimensions 4 i to 4 i + 3, and those 16 further on.
      const __m256i fours[4] = {_mm256_unpacklo_epi16(low01, low23), _mm256_unpackhi_epi16(low01, low23),
                                _mm256_unpacklo_epi16(high01, high23), _mm256_unpackhi_epi16(high01, high23)};
      auto* to = reinterpret_cast<__m256i*>(values);
      _mm256_store_si256(to, _mm256_permute2x128_si256(fours[0], fours[1], 0x20));
      _mm256_store_si256(to + 1, _mm256_permute2x128_si256(fours[2], fours[3], 0x20));
      _mm256_store_si256(to + 2, _mm256_permute2x128_si256(fours[0], fours[1], 0x31));
      _mm256_store_si256(to + 3, _mm256_permute2x128_si256(fours[2], fours[3], 0x31));
    }
  }

  // `bits`: those of the largest magnitudes of up to four groups of numbers. Stores the scales of the first
  // N, and returns what their numbers are multiplied with: anything where there is no scale.
  template <int N>
  [[gnu::always_inline]] static __m128 Inverses(__m128i bits, float* d) {
    const __m128 largest = _mm_castsi128_ps(bits), most = _mm_set1_ps(127.0F);
    const __m128i none = _mm_cmpeq_epi32(_mm_max_epu32(bits, _mm_set1_epi32(0x7F800000)), bits);
    const __m128 scales =
        _mm_blendv_ps(_mm_div_ps(largest, most), _mm_set1_ps(__builtin_nanf("")), _mm_castsi128_ps(none));
    if constexpr (N == 4) {
      _mm_storeu_ps(d, scales);
    } else if constexpr (N == 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(d), scales);
    } else {
      _mm_store_ss(d, scales);
    }
    const __m128 tiny = _mm_cmplt_ps(largest, _mm_set1_ps(kLeastMagnitude));
    return _mm_andnot_ps(tiny, _mm_div_ps(most, largest));
  }
};

inline __m256i BroadcastFour(const void* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  return _mm256_set1_epi32(four);
}

}  // namespace
}  // namespace longspec::kernels
