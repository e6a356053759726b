// SPDX-License-Identifier: Apache-2.0
//
// Vector helpers shared by avx512_*.cc. Everything lives in an unnamed namespace on purpose: each file gets
// its own copy, so no code built with these instructions can be linked into a file built without them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_intrinsics.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline constexpr int kMostRows = 8;  // of one tile

// ---- Loads
// ----------------------------------------------------------------------------------------------------------

// The first `left` of 16 lanes.
inline __mmask16 FirstLanes(int64_t left) {
  return static_cast<__mmask16>(left >= 16 ? 0xFFFFU : (1U << static_cast<unsigned>(left)) - 1U);
}

inline __m256i Load16Bits(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

inline __m512 LoadHalf16(const std::byte* p) { return _mm512_cvtph_ps(Load16Bits(p)); }

inline __m512 LoadBFloat16(const std::byte* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load16Bits(p)), 16));
}

// ---- Stores
// ---------------------------------------------------------------------------------------------------------

// Writes one group's lanes of one row, as far as the matrix has output rows.
inline void StoreGroup(float* y, int64_t n_out, int group, __m512 acc, bool add) {
  const int64_t first = int64_t{group} * kRowGroup;
  const __mmask16 lanes = FirstLanes(n_out - first);
  if (add) acc = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + first), acc);
  _mm512_mask_storeu_ps(y + first, lanes, acc);
}

// ---- Reductions
// -----------------------------------------------------------------------------------------------------

inline __m256 UpperHalf(__m512 v) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)); }

inline int32_t SumOf(__m512i v) {
  const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

// ---- exp
// ------------------------------------------------------------------------------------------------------------

// reference/elementwise.cc: ExpOf, sixteen at a time.
inline __m512 ExpVector(__m512 x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.33654F), _CMP_NLT_UQ);
  x = _mm512_min_ps(_mm512_set1_ps(88.37626F), x);  // NaN stays NaN
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375F), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4F), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1F));
  const __m512 y = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0F));
  // y * 2^n, exactly: results are normal numbers.
  return _mm512_maskz_scalef_ps(normal, y, n);
}

// ---- bf16
// -----------------------------------------------------------------------------------------------------------

// To bf16 numbers, after denormals were flushed; NaN stays NaN.
inline __m512 RoundToBf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512 magnitude = _mm512_abs_ps(x);
  const __mmask16 denormal = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1.0p-126F), _CMP_LT_OQ);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i whole = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
  const __m512i number = _mm512_and_si512(whole, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)));
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000)));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(number, denormal, sign));
}

// 16 numbers and 16 numbers, one after the other, as 16 pairs.
inline __m512i InPairs(__m512i halves) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), halves);
}

// lanes.h, and what bf16_lanes.h wants besides.
struct Lanes {
  static constexpr int kRows = 8, kExpTogether = 1;
  static constexpr bool kLoadsAll = true;
  using Vector = __m512;
  static Vector Zero() { return _mm512_setzero_ps(); }
  static Vector All(float x) { return _mm512_set1_ps(x); }
  static Vector Two(float x, float y) { return _mm512_mask_mov_ps(_mm512_set1_ps(y), 1, _mm512_set1_ps(x)); }
  static Vector Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector LoadPart(const float* p, int n, float rest = 0.0F) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(rest), FirstLanes(n), p);
  }
  static void StorePart(float* p, int n, Vector v) { _mm512_mask_storeu_ps(p, FirstLanes(n), v); }
  static Vector LoadFloats(const std::byte* p) { return Load(reinterpret_cast<const float*>(p)); }
  static Vector LoadHalf(const std::byte* p) { return LoadHalf16(p); }
  static Vector LoadBf16(const std::byte* p) { return LoadBFloat16(p); }

  static Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector Sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector Mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector Div(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  static Vector Negate(Vector v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0F)); }
  static Vector Scale(Vector v, float by) { return _mm512_mul_ps(v, _mm512_set1_ps(by)); }
  static Vector Fma(Vector a, Vector b, Vector sum) { return _mm512_fmadd_ps(a, b, sum); }
  static Vector Max(Vector a, Vector b) { return _mm512_max_ps(a, b); }

  template <int, int>
  static const float* ReadAnew(const float* numbers) {
    return numbers;
  }
  template <int N>
  [[gnu::always_inline]] static void Exp(Vector (&v)[N]) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) v[i] = ExpVector(v[i]);
  }

  static float StripeSum(Vector stripes) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(stripes), UpperHalf(stripes));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float MaxOf(Vector v) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), UpperHalf(v));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static float First(Vector v) { return _mm_cvtss_f32(_mm512_castps512_ps128(v)); }
  static float Second(Vector v) { return _mm_cvtss_f32(_mm_movehdup_ps(_mm512_castps512_ps128(v))); }
  static unsigned Above(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static unsigned Equal(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }

  static void BroadcastTwo(const uint16_t* bf16, Vector& first, Vector& second) {
    int32_t two;
    __builtin_memcpy(&two, bf16, sizeof(two));
    const __m512i both = _mm512_set1_epi32(two);
    first = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    second = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
  static Vector RoundToBf16(Vector v) { return kernels::RoundToBf16(v); }
};

}  // namespace
}  // namespace longspec::kernels
