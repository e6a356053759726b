// SPDX-License-Identifier: Apache-2.0
//
// Vector helpers shared by avx2_*.cc. Everything lives in an unnamed namespace on purpose: each file gets its
// own copy, so no code built with these instructions can be linked into a file built without them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// p = fma(p, r, c) in every vector.
template <int N>
inline void Horner(__m256 (&p)[N], const __m256 (&r)[N], float c) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) p[i] = _mm256_fmadd_ps(p[i], r[i], _mm256_set1_ps(c));
}

// reference/elementwise.cc: ExpOf, of 8 N numbers in place. One exponential is a chain of 15 operations, each
// waiting for the last: step by step through several vectors, so that there is always one that need not wait.
template <int N>
inline void ExpVectors(__m256 (&x)[N]) {
  __m256 n[N], p[N], r[N];
  __m256i tiny[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    const __m256 is_tiny = _mm256_cmp_ps(x[i], _mm256_set1_ps(-87.33654F), _CMP_LT_OQ);
    tiny[i] = _mm256_castps_si256(is_tiny);
    // Lanes that will be 0 are computed at 0, so that no exponent leaves its field.
    // Of two numbers one of which is NaN, the instruction takes the second: NaN stays NaN.
    x[i] = _mm256_min_ps(_mm256_set1_ps(88.37626F), _mm256_andnot_ps(is_tiny, x[i]));
    n[i] = _mm256_mul_ps(x[i], _mm256_set1_ps(1.44269504F));
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) n[i] = _mm256_round_ps(n[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) r[i] = _mm256_fmadd_ps(n[i], _mm256_set1_ps(-0.693359375F), x[i]);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    r[i] = _mm256_fmadd_ps(n[i], _mm256_set1_ps(2.12194440e-4F), r[i]);
    p[i] = _mm256_set1_ps(1.9875691500e-4F);
  }
  Horner(p, r, 1.3981999507e-3F);
  Horner(p, r, 8.3334519073e-3F);
  Horner(p, r, 4.1665795894e-2F);
  Horner(p, r, 1.6666665459e-1F);
  Horner(p, r, 5.0000001201e-1F);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) p[i] = _mm256_fmadd_ps(p[i], _mm256_mul_ps(r[i], r[i]), r[i]);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    const __m256 y = _mm256_add_ps(p[i], _mm256_set1_ps(1.0F));
    const __m256i exponent =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n[i]), _mm256_set1_epi32(127)), 23);
    x[i] = _mm256_andnot_ps(_mm256_castsi256_ps(tiny[i]), _mm256_mul_ps(y, _mm256_castsi256_ps(exponent)));
  }
}

inline __m256 ExpVector(__m256 x) {
  __m256 one[1] = {x};
  ExpVectors(one);
  return one[0];
}

// The fixed tree over 16 stripes: lo holds 0..7, hi 8..15.
inline float StripeSum(__m256 lo, __m256 hi) {
  const __m256 eight = _mm256_add_ps(lo, hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float MaxOf(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// ---- bf16

// To bf16 numbers, after denormals were flushed; NaN stays NaN.
inline __m256 RoundToBf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7F800000));
  const __m256i denormal = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_and_si256(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))),
                       _mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
  const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000)));
  const __m256i quiet = _mm256_and_si256(_mm256_or_si256(bits, _mm256_set1_epi32(0x00400000)),
                                         _mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_castsi256_ps(_mm256_blendv_epi8(_mm256_blendv_epi8(rounded, sign, denormal), quiet, nan));
}

// 16 numbers, as bf16_lanes.h wants them.
struct Lanes {
  static constexpr int kRows = 2;
  struct Vector {
    __m256 low, high;
  };
  static Vector Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vector Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void Store(float* p, const Vector& v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static Vector LoadBf16(const std::byte* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(bits));
    const __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(bits, 1));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
  }
  static void BroadcastTwo(const uint16_t* bf16, Vector& first, Vector& second) {
    int32_t two;
    __builtin_memcpy(&two, bf16, sizeof(two));
    const __m256i both = _mm256_set1_epi32(two);
    first.low = first.high = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    second.low = second.high =
        _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
  static Vector Fma(const Vector& a, const Vector& b, const Vector& sum) {
    return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
  }
  static Vector Add(const Vector& a, const Vector& b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static Vector Scale(const Vector& v, float by) {
    const __m256 factor = _mm256_set1_ps(by);
    return {_mm256_mul_ps(v.low, factor), _mm256_mul_ps(v.high, factor)};
  }
};

}  // namespace
}  // namespace longspec::kernels
