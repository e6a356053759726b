// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/peak_loops.h"

namespace longspec::kernels::avx512 {
namespace {

constexpr int kChains = 12;  // enough to hide the latency of two units

}  // namespace

// vpdpbusd: 64 products and their sums.
int64_t PeakQ8(int64_t rounds) {
  __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(-5), sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512i& s : sum) {
      asm volatile("" : "+v"(w), "+v"(x));
      s = _mm512_dpbusd_epi32(s, w, x);
      asm volatile("" : "+v"(s));
    }
  }
  return rounds * kChains * 64;
}

int64_t PeakF32(int64_t rounds) {
  const __m512 w = _mm512_set1_ps(0.5F);
  __m512 sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512& s : sum) {
      s = _mm512_fmadd_ps(w, w, s);
      asm volatile("" : "+v"(s));
    }
  }
  return rounds * kChains * 16;
}

}  // namespace longspec::kernels::avx512
