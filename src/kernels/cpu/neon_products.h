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

// Four weights of each of 4 output rows: those of values 16 I + 4 J on, as signed bytes. U4 formats keep
// nibbles 0 to 15 whose offset, if any, is taken off the sums; the others lose theirs here.
template <WeightFormat F, int I, int J>
inline int8x16_t Weights(const std::byte* w) {
  if constexpr (kIsU4<F>) {
    const uint8x16_t raw = LoadBytes(w + 64 * J);
    return vreinterpretq_s8_u8(I == 0 ? vandq_u8(raw, vdupq_n_u8(15)) : vshrq_n_u8(raw, 4));
  } else {
    const uint8x16_t raw = LoadBytes(w + 64 * (4 * I + J));
    if constexpr (F == WeightFormat::kSuperU5Min) return vreinterpretq_s8_u8(raw);
    if constexpr (F == WeightFormat::kSuperU6Halves)
      return vreinterpretq_s8_u8(vsubq_u8(raw, vdupq_n_u8(32)));
    return vreinterpretq_s8_u8(veorq_u8(raw, vdupq_n_u8(128)));
  }
}

template <WeightFormat F, int I, int J, int R, int V>
[[gnu::always_inline]] inline void AddFours(const std::byte* w, const int8x16_t (&q)[R],
                                            int32x4_t (&dot)[R][V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    const int8x16_t weights = Weights<F, I, J>(w + 16 * v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) dot[r][v] = vdotq_laneq_s32(dot[r][v], weights, q[r], J);
  }
}

}  // namespace
}  // namespace longspec::kernels::neon
