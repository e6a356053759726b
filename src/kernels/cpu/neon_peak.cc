// SPDX-License-Identifier: Apache-2.0
#include <arm_neon.h>

#include "kernels/cpu/peak_loops.h"

namespace longspec::kernels::neon {
namespace {

constexpr int kChains = 16;  // enough to hide the latency of four units

}  // namespace

// sdot: 16 products and their sums.
int64_t PeakQ8(int64_t rounds) {
  int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(-5);
  int32x4_t sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int32x4_t& s : sum) {
      asm volatile("" : "+w"(w), "+w"(x));
      s = vdotq_s32(s, w, x);
      asm volatile("" : "+w"(s));
    }
  }
  return rounds * kChains * 16;
}

int64_t PeakF32(int64_t rounds) {
  const float32x4_t w = vdupq_n_f32(0.5F);
  float32x4_t sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (float32x4_t& s : sum) {
      s = vfmaq_f32(s, w, w);
      asm volatile("" : "+w"(s));
    }
  }
  return rounds * kChains * 4;
}

}  // namespace longspec::kernels::neon
