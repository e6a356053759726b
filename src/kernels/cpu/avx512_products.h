// SPDX-License-Identifier: Apache-2.0
//
// What the products of quantised weights have in common, AVX-512. Everything lives in an unnamed namespace:
// only files built with these instructions may include this.
#pragma once

#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/weight_traits.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {  // NOLINT(google-build-namespaces)

inline __m512i Broadcast32(const void* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// Part P of line J of a block's weights.
template <WeightFormat F, int J, int P>
inline __m512i LinePartOf(const std::byte* w) {
  constexpr LinePart kPart = kLinePart<F, J, P>;
  __m512i bytes = _mm512_loadu_si512(w + 64 * kPart.line);
  if constexpr (kPart.from > kPart.to) bytes = _mm512_srli_epi16(bytes, kPart.from - kPart.to);
  if constexpr (kPart.n == 8) return bytes;
  constexpr int kMask = kPartMask<F, J, P>;
  return _mm512_and_si512(bytes, _mm512_set1_epi8(kMask));
}

// w + offset, unsigned bytes, of 64 codes.
template <WeightFormat F>
inline __m512i BytesOfCodes(__m512i codes) {
  const auto* bytes = reinterpret_cast<const __m128i*>(kByteOfCode<F>.of);
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(bytes)), codes);
}

// Line J: weights 4 J + i of the 16 output rows, unsigned bytes.
template <WeightFormat F, int J>
inline __m512i Line(const std::byte* w) {
  __m512i line = LinePartOf<F, J, 0>(w);
  if constexpr (kWeightLine<F, J>.n_parts > 1) {
    const __m512i part = LinePartOf<F, J, 1>(w);
    line = _mm512_or_si512(line, part);
  }
  if constexpr (kWeightLine<F, J>.n_parts > 2) {
    const __m512i part = LinePartOf<F, J, 2>(w);
    line = _mm512_or_si512(line, part);
  }
  if constexpr (kHasCodes<F>) line = BytesOfCodes<F>(line);
  return line;
}

// 2^(byte - 128) of 16 bytes. Below 2^-126 there are two such numbers, whose bits are the greater here.
inline __m512 LoadExponents16(const std::byte* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __m512i tiny = _mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(1)), 21);
  return _mm512_castsi512_ps(_mm512_max_epi32(normal, tiny));
}

}  // namespace
}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
