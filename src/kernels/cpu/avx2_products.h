// SPDX-License-Identifier: Apache-2.0
//
// What the products of integers and of floats have in common, AVX2. Everything lives in an unnamed namespace:
// only files built with these instructions may include this.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/weight_traits.h"

namespace longspec::kernels::avx2 {
namespace {  // NOLINT(google-build-namespaces)

constexpr int kVectors = 2;  // of 8 lanes: a group's 16 output rows

inline __m256i Broadcast4(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return _mm256_set1_epi32(four);
}

inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Part P of line J of a block's weights, of 8 output rows.
template <WeightFormat F, int J, int P>
inline __m256i LinePartOf(const std::byte* w, int v) {
  constexpr LinePart kPart = kLinePart<F, J, P>;
  __m256i bytes = LoadBytes(w + 64 * kPart.line + 32 * v);
  if constexpr (kPart.from > kPart.to) bytes = _mm256_srli_epi16(bytes, kPart.from - kPart.to);
  if constexpr (kPart.n == 8) return bytes;
  return _mm256_and_si256(bytes, _mm256_set1_epi8(kPartMask<F, J, P>));
}

// w + offset, unsigned bytes, of 32 codes.
template <WeightFormat F>
inline __m256i BytesOfCodes(__m256i codes) {
  const auto* bytes = reinterpret_cast<const __m128i*>(kByteOfCode<F>.of);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(bytes)), codes);
}

// Line J: weights 4 J + i of 8 output rows, unsigned bytes.
template <WeightFormat F, int J>
inline __m256i Line(const std::byte* w, int v) {
  __m256i line = LinePartOf<F, J, 0>(w, v);
  if constexpr (kWeightLine<F, J>.n_parts > 1) line = _mm256_or_si256(line, LinePartOf<F, J, 1>(w, v));
  if constexpr (kWeightLine<F, J>.n_parts > 2) line = _mm256_or_si256(line, LinePartOf<F, J, 2>(w, v));
  if constexpr (kHasCodes<F>) line = BytesOfCodes<F>(line);
  return line;
}

// Of unsigned bytes w + 128.
inline __m256i Less128(__m256i bytes) { return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)); }

inline __m256 LoadHalf8(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// 2^(byte - 128) of 8 bytes. Below 2^-126 there are two such numbers, whose bits are the greater here.
inline __m256 LoadExponents8(const std::byte* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i tiny = _mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(1)), 21);
  return _mm256_castsi256_ps(_mm256_max_epi32(normal, tiny));
}

inline void StoreVector(float* y, __m256 acc, bool add) {
  _mm256_storeu_ps(y, add ? _mm256_add_ps(_mm256_loadu_ps(y), acc) : acc);
}

// Of a group with `left` < 16 output rows only those are written. lanes: (n_rows, 16).
[[gnu::noinline, maybe_unused]] void StoreFewLanes(const float* lanes, int n_rows, int64_t left, float* y,
                                                   int64_t y_stride, bool add) {
  for (int r = 0; r < n_rows; ++r, lanes += kRowGroup, y += y_stride) {
    for (int64_t i = 0; i < left; ++i) y[i] = add ? y[i] + lanes[i] : lanes[i];
  }
}

// Stops the compiler from moving the loads of later steps up until they no longer fit into registers.
inline void KeepInRegister(__m256i& v) { asm("" : "+x"(v)); }

// What was stored by way of a pointer is no longer known: it has to be read again.
template <typename T>
inline void Forget(T*& p) {
  asm("" : "+r"(p));
}

}  // namespace
}  // namespace longspec::kernels::avx2
