// SPDX-License-Identifier: Apache-2.0
//
// What the products of quantised weights and of floats have in common, AArch64 with sdot. Everything lives in
// an unnamed namespace: only files built with these instructions may include this.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/neon_math.h"
#include "kernels/cpu/weight_traits.h"

namespace longspec::kernels::neon {
namespace {  // NOLINT(google-build-namespaces)

// Writes V vectors of one row from output row `first` on, as far as the matrix has output rows.
template <int V>
[[gnu::always_inline]] inline void StoreLanes(float* y, int64_t n_out, int64_t first,
                                              const float32x4_t (&acc)[V], bool add) {
  if (first + 4 * V <= n_out) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* at = y + first + 4 * v;
      vst1q_f32(at, add ? vaddq_f32(vld1q_f32(at), acc[v]) : acc[v]);
    }
    return;
  }
  float lanes[4 * V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) vst1q_f32(lanes + 4 * v, acc[v]);
  for (int64_t i = 0; first + i < n_out; ++i) y[first + i] = add ? y[first + i] + lanes[i] : lanes[i];
}

// Part P of line J of a block's weights, of 4 output rows, at the top of each byte.
template <WeightFormat F, int J, int P>
inline uint8x16_t LinePartOf(const std::byte* w) {
  constexpr LinePart kPart = kLinePart<F, J, P>;
  const uint8x16_t bytes = LoadBytes(w + 64 * kPart.line);
  if constexpr (kPart.from + kPart.n == 8) return bytes;
  return vshlq_n_u8(bytes, 8 - kPart.from - kPart.n);
}

// Line J: weights 4 J + i of 4 output rows, unsigned bytes.
template <WeightFormat F, int J>
inline uint8x16_t Line(const std::byte* w) {
  constexpr WeightLine kLine = kWeightLine<F, J>;
  constexpr LinePart kFirst = kLine.parts[0], kSecond = kLine.parts[1];
  if constexpr (kFirst.n == 8) {
    return LoadBytes(w + 64 * kFirst.line);
  } else if constexpr (kLine.n_parts == 1 && kFirst.from == 0) {
    return vandq_u8(LoadBytes(w + 64 * kFirst.line), vdupq_n_u8(kPartMask<F, J, 0>));
  } else {
    uint8x16_t line = LinePartOf<F, J, 0>(w);
    if constexpr (kLine.n_parts > 1) line = vsriq_n_u8(line, LinePartOf<F, J, 1>(w), kFirst.n);
    if constexpr (kLine.n_parts > 2) line = vsriq_n_u8(line, LinePartOf<F, J, 2>(w), kFirst.n + kSecond.n);
    return vshrq_n_u8(line, 8 - kBits<F>);
  }
}

// Line J as signed bytes, which is how they are unpacked. What was added to weights of at most five bits in
// blocks of 32 is taken off the sums; the others lose it here.
template <WeightFormat F, int J>
inline int8x16_t SignedLine(const std::byte* w) {
  uint8x16_t line = Line<F, J>(w);
  if constexpr (kHasCodes<F>) line = vqtbl1q_u8(vld1q_u8(kByteOfCode<F>.of), line);
  if constexpr (kOffset<F> == 4) return vreinterpretq_s8_u8(vsubq_u8(line, vdupq_n_u8(4)));
  if constexpr (kOffset<F> == 32) return vreinterpretq_s8_u8(vsubq_u8(line, vdupq_n_u8(32)));
  if constexpr (kOffset<F> == 128) return vreinterpretq_s8_u8(veorq_u8(line, vdupq_n_u8(128)));
  return vreinterpretq_s8_u8(line);
}

// dot += the products of line 4 I + J; q is of half I.
template <WeightFormat F, Quants Q, int I, int J, int R, int V>
[[gnu::always_inline]] inline void AddFours(const std::byte* w, const int8x16_t (&q)[R],
                                            int32x4_t (&dot)[R][V]) {
  constexpr int kLine = 4 * I + J;
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    const std::byte* of_v = w + 16 * v;
    int8x16_t weights;
    if constexpr (Q == Quants::kBytes) {
      weights = vreinterpretq_s8_u8(LoadBytes(of_v + 64 * kLine));
    } else {
      weights = SignedLine<F, kLine>(of_v);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) dot[r][v] = vdotq_laneq_s32(dot[r][v], weights, q[r], J);
  }
}

}  // namespace
}  // namespace longspec::kernels::neon
