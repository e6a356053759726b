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
  static float Quantize(const float* x, int8_t* q) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    return Round(v, most, q);
  }

  static float QuantizeWeights(const float* p, const float* scales, int n, uint8_t* q) {
    __m256 w[4];
    if (n >= kQuantBlock) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        w[i] = _mm256_mul_ps(_mm256_loadu_ps(p + 8 * i), _mm256_load_ps(scales + 8 * i));
    } else {
      float seen[kQuantBlock] = {};
      for (int i = 0; i < n; ++i) seen[i] = p[i] * scales[i];
      for (int i = 0; i < 4; ++i) w[i] = _mm256_loadu_ps(seen + 8 * i);
    }
    const __m256i first = _mm256_max_epu32(_mm256_castps_si256(w[0]), _mm256_castps_si256(w[1]));
    const __m256i second = _mm256_max_epu32(_mm256_castps_si256(w[2]), _mm256_castps_si256(w[3]));
    return Round(w, _mm256_max_epu32(first, second), q);
  }

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
      StoreHalves(_mm256_unpacklo_epi16(low01, low23), values);
      StoreHalves(_mm256_unpackhi_epi16(low01, low23), values + 16);
      StoreHalves(_mm256_unpacklo_epi16(high01, high23), values + 32);
      StoreHalves(_mm256_unpackhi_epi16(high01, high23), values + 48);
    }
  }

 private:
  // `most`: bits of magnitudes.
  [[gnu::always_inline]] static float Round(const __m256 (&x)[4], __m256i most, void* q) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    auto* to = static_cast<__m256i*>(q);
    if (static_cast<uint32_t>(_mm_cvtsi128_si32(m)) >= 0x7F800000U) {
      _mm256_store_si256(to, _mm256_setzero_si256());
      return __builtin_nanf("");
    }
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(m));
    const __m256 inverse = _mm256_set1_ps(InverseOf(largest));
    __m256i words[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) words[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
    const __m256i first = _mm256_packs_epi32(words[0], words[1]);
    const __m256i second = _mm256_packs_epi32(words[2], words[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_store_si256(to, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order));
    return largest / 127.0F;
  }

  // Dimensions d to d + 3, and those 16 further on.
  static void StoreHalves(__m256i v, int8_t* to) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(v));
    _mm_store_si128(reinterpret_cast<__m128i*>(to + 64), _mm256_extracti128_si256(v, 1));
  }
};

inline __m256i BroadcastFour(const void* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  return _mm256_set1_epi32(four);
}

}  // namespace
}  // namespace longspec::kernels
