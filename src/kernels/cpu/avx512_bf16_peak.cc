// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/peak_loops.h"

namespace longspec::kernels::avx512_bf16 {

// vdpbf16ps: two products in each of 16 lanes.
int64_t PeakBf16(int64_t rounds) {
  constexpr int kChains = 16;  // enough to hide the latency of two units
  const auto w = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F003F00));
  __m512 sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& s : sum) {
      s = _mm512_dpbf16_ps(s, w, w);
      asm volatile("" : "+v"(s));
    }
  }
  return rounds * kChains * 32;
}

}  // namespace longspec::kernels::avx512_bf16
