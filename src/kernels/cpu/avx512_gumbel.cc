// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_intrinsics.h"
#include "kernels/cpu/gumbel_search.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

// Four words of eight counters, each in the low half of a lane of 64 bits, as multiplications want them. The
// high halves hold what no one reads.
struct Words {
  __m512i w[4];
};

inline __m512i Xor3(__m512i a, __m512i b, uint32_t c) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32(static_cast<int>(c)), 0x96);
}

inline Words NextRound(const Words& c, const uint32_t (&key)[2]) {
  const __m512i p0 = _mm512_mul_epu32(c.w[0], _mm512_set1_epi32(static_cast<int>(kPhiloxM0)));
  const __m512i p1 = _mm512_mul_epu32(c.w[2], _mm512_set1_epi32(static_cast<int>(kPhiloxM1)));
  return {{Xor3(_mm512_srli_epi64(p1, 32), c.w[1], key[0]), p1,
           Xor3(_mm512_srli_epi64(p0, 32), c.w[3], key[1]), p0}};
}

struct GumbelLanes {
  static uint64_t Joined(__mmask16 m0, __mmask16 m1, __mmask16 m2, __mmask16 m3) {
    return uint64_t{m0} | uint64_t{m1} << 16 | uint64_t{m2} << 32 | uint64_t{m3} << 48;
  }

  static uint64_t Equal(const float* x, float value) {
    const __m512 wanted = _mm512_set1_ps(value);
    return Joined(_mm512_cmp_ps_mask(_mm512_loadu_ps(x), wanted, _CMP_EQ_OQ),
                  _mm512_cmp_ps_mask(_mm512_loadu_ps(x + 16), wanted, _CMP_EQ_OQ),
                  _mm512_cmp_ps_mask(_mm512_loadu_ps(x + 32), wanted, _CMP_EQ_OQ),
                  _mm512_cmp_ps_mask(_mm512_loadu_ps(x + 48), wanted, _CMP_EQ_OQ));
  }

  struct Thresholds {
    __m512i t[4];
  };

  static Thresholds ThresholdsOf(const float* x, float largest, float scale, float offset) {
    Thresholds out;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(largest));
      out.t[i] = _mm512_cvtps_epi32(_mm512_fmadd_ps(below, _mm512_set1_ps(scale), _mm512_set1_ps(offset)));
    }
    return out;
  }

  static bool AnyAbove(const Thresholds& t, int32_t limit) {
    const __m512i most = _mm512_max_epi32(_mm512_max_epi32(t.t[0], t.t[1]), _mm512_max_epi32(t.t[2], t.t[3]));
    return _mm512_cmpgt_epi32_mask(most, _mm512_set1_epi32(limit)) != 0;
  }

  static uint64_t Hits(const Thresholds& t, uint32_t counter, const RoundKeys& keys) {
    // Even and odd counters.
    const __m512i first = _mm512_set1_epi64(counter);
    Words even = {
        {_mm512_add_epi32(first, _mm512_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0, 14, 0)),
         _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()}};
    Words odd = even;
    odd.w[0] = _mm512_add_epi32(even.w[0], _mm512_set1_epi32(1));
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
      even = NextRound(even, keys.k[round]);
      odd = NextRound(odd, keys.k[round]);
    }
    __mmask16 hits[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i bits = _mm512_mask_blend_epi32(0xAAAA, even.w[i], _mm512_slli_epi64(odd.w[i], 32));
      const __m512i w = _mm512_xor_si512(_mm512_srli_epi32(bits, 1), _mm512_set1_epi32(0x7FFFFFFF));
      hits[i] = _mm512_cmpgt_epi32_mask(t.t[i], _mm512_castps_si512(_mm512_cvtepi32_ps(w)));
    }
    return Joined(hits[0], hits[1], hits[2], hits[3]);
  }
};

}  // namespace

int GumbelArgmax(const GumbelArgs& a) { return GumbelArgmaxBy<GumbelLanes>(a); }

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
