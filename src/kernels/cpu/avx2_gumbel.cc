// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/gumbel_search.h"

namespace longspec::kernels::avx2 {
namespace {

// Four words of four counters, each in the low half of a lane of 64 bits, as multiplications want them. The
// high halves hold what no one reads.
struct Words {
  __m256i w[4];
};

inline __m256i Xor3(__m256i a, __m256i b, uint32_t c) {
  return _mm256_xor_si256(a, _mm256_xor_si256(b, _mm256_set1_epi32(static_cast<int>(c))));
}

inline Words NextRound(const Words& c, const uint32_t (&key)[2]) {
  const __m256i p0 = _mm256_mul_epu32(c.w[0], _mm256_set1_epi32(static_cast<int>(kPhiloxM0)));
  const __m256i p1 = _mm256_mul_epu32(c.w[2], _mm256_set1_epi32(static_cast<int>(kPhiloxM1)));
  return {{Xor3(_mm256_srli_epi64(p1, 32), c.w[1], key[0]), p1,
           Xor3(_mm256_srli_epi64(p0, 32), c.w[3], key[1]), p0}};
}

struct GumbelLanes {
  static uint64_t Bits(__m256 mask, int first) {
    return static_cast<uint64_t>(_mm256_movemask_ps(mask)) << static_cast<unsigned>(first);
  }

  static uint64_t Equal(const float* x, float value) {
    uint64_t equal = 0;
#pragma GCC unroll 8
    for (int i = 0; i < 64; i += 8) {
      equal |= Bits(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(value), _CMP_EQ_OQ), i);
    }
    return equal;
  }

  struct Thresholds {
    __m256i t[8];
  };

  static Thresholds ThresholdsOf(const float* x, float largest, float scale, float offset) {
    Thresholds out;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256 below = _mm256_sub_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(largest));
      out.t[i] = _mm256_cvtps_epi32(_mm256_fmadd_ps(below, _mm256_set1_ps(scale), _mm256_set1_ps(offset)));
    }
    return out;
  }

  static bool AnyAbove(const Thresholds& t, int32_t limit) {
    __m256i most = t.t[0];
#pragma GCC unroll 8
    for (int i = 1; i < 8; ++i) most = _mm256_max_epi32(most, t.t[i]);
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(most, _mm256_set1_epi32(limit))) != 0;
  }

  static uint64_t Hits(const Thresholds& t, uint32_t counter, const RoundKeys& keys) {
    uint64_t hits = 0;
    // Eight counters at a time, even and odd ones: their words fill half the registers.
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i first = _mm256_set1_epi64x(static_cast<int64_t>(counter) + 8 * half);
      Words even = {{_mm256_add_epi32(first, _mm256_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0)),
                     _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()}};
      Words odd = even;
      odd.w[0] = _mm256_add_epi32(even.w[0], _mm256_set1_epi32(1));
#pragma GCC unroll 10
      for (int round = 0; round < kPhiloxRounds; ++round) {
        even = NextRound(even, keys.k[round]);
        odd = NextRound(odd, keys.k[round]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m256i bits = _mm256_blend_epi32(even.w[i], _mm256_slli_epi64(odd.w[i], 32), 0xAA);
        const __m256i w = _mm256_xor_si256(_mm256_srli_epi32(bits, 1), _mm256_set1_epi32(0x7FFFFFFF));
        const __m256i hit = _mm256_cmpgt_epi32(t.t[2 * i + half], _mm256_castps_si256(_mm256_cvtepi32_ps(w)));
        hits |= Bits(_mm256_castsi256_ps(hit), 16 * i + 8 * half);
      }
    }
    return hits;
  }
};

}  // namespace

int GumbelArgmax(const GumbelArgs& a) { return GumbelArgmaxBy<GumbelLanes>(a); }

}  // namespace longspec::kernels::avx2
