// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/peak_loops.h"

namespace longspec::kernels::avx2 {
namespace {

constexpr int kChains = 10;  // enough to hide the latency of two units

}  // namespace

// vpmaddubsw and vpaddw: 32 products and their sums.
int64_t PeakQ8(int64_t rounds) {
  __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-5), sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 10
    for (__m256i& s : sum) {
      asm volatile("" : "+x"(w), "+x"(x));
      s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w, x));
      asm volatile("" : "+x"(s));
    }
  }
  return rounds * kChains * 32;
}

int64_t PeakF32(int64_t rounds) {
  const __m256 w = _mm256_set1_ps(0.5F);
  __m256 sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 10
    for (__m256& s : sum) {
      s = _mm256_fmadd_ps(w, w, s);
      asm volatile("" : "+x"(s));
    }
  }
  return rounds * kChains * 8;
}

}  // namespace longspec::kernels::avx2
