// SPDX-License-Identifier: Apache-2.0
//
// Vector helpers shared by avx2_*.cc. Everything lives in an unnamed namespace on purpose: each file gets its
// own copy, so no code built with these instructions can be linked into a file built without them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lanes.h"

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

// lanes.h, and what bf16_lanes.h wants besides.
struct Lanes : PartsByCopy<Lanes> {
  static constexpr int kRows = 2, kExpTogether = 4;
  static constexpr bool kLoadsAll = false;
  struct Vector {
    __m256 low, high;
  };
  static Vector Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vector All(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vector Two(float x, float y) {
    return {_mm256_setr_ps(x, y, 0, 0, 0, 0, 0, 0), _mm256_setzero_ps()};
  }
  static Vector Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void Store(float* p, const Vector& v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }

  static Vector LoadFloats(const std::byte* p) { return Load(reinterpret_cast<const float*>(p)); }
  static Vector LoadHalf(const std::byte* p) { return {HalfToFloat(p), HalfToFloat(p + 16)}; }
  static Vector LoadBf16(const std::byte* p) { return {Bf16ToFloat(p), Bf16ToFloat(p + 16)}; }

  static Vector Add(const Vector& a, const Vector& b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static Vector Sub(const Vector& a, const Vector& b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  static Vector Mul(const Vector& a, const Vector& b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static Vector Div(const Vector& a, const Vector& b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static Vector Negate(const Vector& v) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_xor_ps(v.low, sign), _mm256_xor_ps(v.high, sign)};
  }
  static Vector Scale(const Vector& v, float by) {
    const __m256 factor = _mm256_set1_ps(by);
    return {_mm256_mul_ps(v.low, factor), _mm256_mul_ps(v.high, factor)};
  }
  static Vector Fma(const Vector& a, const Vector& b, const Vector& sum) {
    return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
  }
  static Vector Max(const Vector& a, const Vector& b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }

  // Where the R numbers, used by several vectors, would not fit into the 16 registers beside the sums and one
  // vector, they are read for each. A sum that went through memory would cost three times an addition.
  template <int R, int n_sums>
  [[gnu::always_inline]] static const float* ReadAnew(const float* numbers) {
    if constexpr (2 * n_sums + 2 + R > 16) asm volatile("" : "+r"(numbers));  // two of them are not the same
    return numbers;
  }
  template <int N>
  [[gnu::always_inline]] static void Exp(Vector (&v)[N]) {
    __m256 halves[2 * N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      halves[2 * i] = v[i].low;
      halves[2 * i + 1] = v[i].high;
    }
    ExpVectors(halves);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) v[i] = {halves[2 * i], halves[2 * i + 1]};
  }

  static float StripeSum(const Vector& stripes) {
    const __m256 eight = _mm256_add_ps(stripes.low, stripes.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float MaxOf(const Vector& v) {
    const __m256 eight = _mm256_max_ps(v.low, v.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static float First(const Vector& v) { return _mm256_cvtss_f32(v.low); }
  static float Second(const Vector& v) {
    return _mm_cvtss_f32(_mm_movehdup_ps(_mm256_castps256_ps128(v.low)));
  }
  static unsigned Above(const Vector& a, const Vector& b) {
    return Bits(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ));
  }
  static unsigned Equal(const Vector& a, const Vector& b) {
    return Bits(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ));
  }

  static void BroadcastTwo(const uint16_t* bf16, Vector& first, Vector& second) {
    int32_t two;
    __builtin_memcpy(&two, bf16, sizeof(two));
    const __m256i both = _mm256_set1_epi32(two);
    first.low = first.high = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    second.low = second.high =
        _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
  static Vector RoundToBf16(const Vector& v) {
    return {kernels::RoundToBf16(v.low), kernels::RoundToBf16(v.high)};
  }

 private:
  static __m128i Load128(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static __m256 HalfToFloat(const std::byte* p) { return _mm256_cvtph_ps(Load128(p)); }
  static __m256 Bf16ToFloat(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16));
  }
  static unsigned Bits(__m256 low, __m256 high) {
    return static_cast<unsigned>(_mm256_movemask_ps(low)) | static_cast<unsigned>(_mm256_movemask_ps(high))
                                                                << 8U;
  }
};

}  // namespace
}  // namespace longspec::kernels
