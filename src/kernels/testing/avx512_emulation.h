// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 intrinsics on AVX2: SIMDe's, and exact replacements for those that SIMDe 0.7.4 lacks. Included by
// the test build of avx512_*.cc in place of the compiler's. Native macros take the place of the compiler's
// functions, which cannot be called without the instructions.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cstdint>
#include <cstring>

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// 512-bit values as their two halves.
struct FloatHalves {
  __m256 low, high;
};
struct IntHalves {
  __m256i low, high;
};

inline FloatHalves HalvesOf(__m512 v) {
  FloatHalves halves;
  std::memcpy(&halves, &v, sizeof(v));
  return halves;
}
inline IntHalves HalvesOf(__m512i v) {
  IntHalves halves;
  std::memcpy(&halves, &v, sizeof(v));
  return halves;
}
inline __m512 Joined(__m256 low, __m256 high) {
  const FloatHalves halves = {low, high};
  __m512 v;
  std::memcpy(&v, &halves, sizeof(v));
  return v;
}
inline __m512i Joined(__m256i low, __m256i high) {
  const IntHalves halves = {low, high};
  __m512i v;
  std::memcpy(&v, &halves, sizeof(v));
  return v;
}

inline __m512 EmulatedToFloat(__m512i v) {
  const IntHalves h = HalvesOf(v);
  return Joined(_mm256_cvtepi32_ps(h.low), _mm256_cvtepi32_ps(h.high));
}

inline __m512i EmulatedToInt(__m512 v) {
  const FloatHalves h = HalvesOf(v);
  return Joined(_mm256_cvtps_epi32(h.low), _mm256_cvtps_epi32(h.high));
}

inline __m512 EmulatedFromHalf(__m256i v) {
  return Joined(_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}

inline __m256i EmulatedToHalf(__m512 v) {
  const FloatHalves h = HalvesOf(v);
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return _mm256_setr_m128i(_mm256_cvtps_ph(h.low, kNearest), _mm256_cvtps_ph(h.high, kNearest));
}

inline __m512i EmulatedWiden(__m256i v) {
  return Joined(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)));
}

inline __m512i EmulatedWidenSigned16(__m256i v) {
  return Joined(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(v)),
                _mm256_cvtepi16_epi32(_mm256_extracti128_si256(v, 1)));
}

inline __m512i EmulatedWidenBytes(__m128i v) {
  return Joined(_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v)));
}

inline __m512i EmulatedWidenSigned(__m128i v) {
  return Joined(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));
}

inline __m512i EmulatedShiftSigned(__m512i v, int by) {
  const IntHalves h = HalvesOf(v);
  return Joined(_mm256_srai_epi32(h.low, by), _mm256_srai_epi32(h.high, by));
}

inline __m256i EmulatedTruncate(__m512i v) {
  uint32_t wide[16];
  uint16_t narrow[16];
  std::memcpy(wide, &v, sizeof(wide));
  for (int i = 0; i < 16; ++i) narrow[i] = static_cast<uint16_t>(wide[i]);
  __m256i out;
  std::memcpy(&out, narrow, sizeof(out));
  return out;
}

inline __m512 EmulatedFmaddsub(__m512 a, __m512 b, __m512 c) {
  const FloatHalves x = HalvesOf(a), y = HalvesOf(b), z = HalvesOf(c);
  return Joined(_mm256_fmaddsub_ps(x.low, y.low, z.low), _mm256_fmaddsub_ps(x.high, y.high, z.high));
}

inline __m512 EmulatedRound(__m512 v) {
  const FloatHalves h = HalvesOf(v);
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return Joined(_mm256_round_ps(h.low, kNearest), _mm256_round_ps(h.high, kNearest));
}

// y * 2^n in the lanes of the mask, 0 in the others: for normal results.
inline __m512 EmulatedMaskScale(unsigned mask, __m512 y, __m512 n) {
  float lanes[16], exponents[16];
  std::memcpy(lanes, &y, sizeof(lanes));
  std::memcpy(exponents, &n, sizeof(exponents));
  for (unsigned i = 0; i < 16; ++i) {
    const bool scaled = exponents[i] == exponents[i];  // y is NaN where n is
    if (scaled) lanes[i] = __builtin_ldexpf(lanes[i], static_cast<int>(exponents[i]));
    if ((mask >> i & 1U) == 0) lanes[i] = 0.0F;
  }
  __m512 v;
  std::memcpy(&v, lanes, sizeof(v));
  return v;
}

// SIMDe's leaves -0 as it is.
inline __m512 EmulatedAbs(__m512 v) {
  const FloatHalves h = HalvesOf(v);
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return Joined(_mm256_andnot_ps(sign, h.low), _mm256_andnot_ps(sign, h.high));
}

// Masked-off lanes touch no memory, as in the instruction.
inline __m512 EmulatedMaskLoad(__m512 otherwise, unsigned mask, const float* p) {
  float lanes[16];
  std::memcpy(lanes, &otherwise, sizeof(lanes));
  for (unsigned i = 0; i < 16; ++i) {
    if ((mask >> i & 1U) != 0) lanes[i] = p[i];
  }
  __m512 v;
  std::memcpy(&v, lanes, sizeof(v));
  return v;
}

inline void EmulatedMaskStore(float* p, unsigned mask, __m512 v) {
  float lanes[16];
  std::memcpy(lanes, &v, sizeof(lanes));
  for (unsigned i = 0; i < 16; ++i) {
    if ((mask >> i & 1U) != 0) p[i] = lanes[i];
  }
}

}  // namespace
}  // namespace longspec::kernels

// NOLINTBEGIN(bugprone-reserved-identifier): the compiler's names
#define _mm512_cvtepi32_ps(v) EmulatedToFloat(v)
#define _mm512_cvtps_epi32(v) EmulatedToInt(v)
#define _mm512_cvtph_ps(v) EmulatedFromHalf(v)
#define _mm512_cvtps_ph(v, rounding) EmulatedToHalf(v)  // all callers round to nearest
#define _mm512_cvtepu16_epi32(v) EmulatedWiden(v)
#define _mm512_cvtepi16_epi32(v) EmulatedWidenSigned16(v)
#define _mm512_cvtepu8_epi32(v) EmulatedWidenBytes(v)
#define _mm512_cvtepi8_epi32(v) EmulatedWidenSigned(v)
#define _mm512_cvtepi32_epi16(v) EmulatedTruncate(v)
#define _mm512_srai_epi32(v, by) EmulatedShiftSigned(v, by)
#define _mm512_fmaddsub_ps(a, b, c) EmulatedFmaddsub(a, b, c)
#define _mm512_mask_loadu_ps(otherwise, mask, p) EmulatedMaskLoad(otherwise, mask, p)
#define _mm512_maskz_loadu_ps(mask, p) EmulatedMaskLoad(_mm512_setzero_ps(), mask, p)
#define _mm512_mask_storeu_ps(p, mask, v) EmulatedMaskStore(p, mask, v)
#undef _mm512_abs_ps
#define _mm512_abs_ps(v) EmulatedAbs(v)
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(v, rounding) EmulatedRound(v)  // all callers round to integers, to nearest
#undef _mm512_maskz_scalef_ps
#define _mm512_maskz_scalef_ps(mask, y, n) EmulatedMaskScale(mask, y, n)
// NOLINTEND(bugprone-reserved-identifier)
