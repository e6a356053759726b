// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8", AVX-512 VNNI. Fours of products are added at once; one factor is unsigned: a
// key's, to which 128 is added, and weights. What that adds to a score, 128 times the sum of the query's
// integers, its sum begins without.
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/integer_lanes_avx2.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

inline __m512i Four(const void* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  return _mm512_set1_epi32(four);
}

struct Set : IntegerLanesAvx2 {
  static constexpr int kQueryRows = 8;

  template <int R>
  static void ScoreBlock(const std::byte* block, int head_dim, const IntegerQueries<R>& queries, float scale,
                         float* out, int64_t out_stride) {
    const std::byte* scales = block + static_cast<size_t>(head_dim) * kKeyGroup;
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(128));
    __m512 sums[R];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    for (int group = 0; group * kQuantBlock < head_dim; ++group, scales += 2 * kKeyGroup) {
      __m512i dots[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) dots[r] = _mm512_set1_epi32(queries.less_128[r][group]);
#pragma GCC unroll 8
      for (int d = 0; d < kQuantBlock; d += 4, block += 4 * kKeyGroup) {
        const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(block), offset);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          dots[r] = _mm512_dpbusd_epi32(dots[r], k, Four(queries.q[r] + group * kQuantBlock + d));
      }
      const __m512 dk = LoadHalf16(scales);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 dq = _mm512_set1_ps(queries.d[r][group]);
        sums[r] = _mm512_fmadd_ps(dk, _mm512_mul_ps(_mm512_cvtepi32_ps(dots[r]), dq), sums[r]);
      }
    }
    const __m512 by = _mm512_set1_ps(scale);
    for (int r = 0; r < R; ++r, out += out_stride) _mm512_storeu_ps(out, _mm512_mul_ps(sums[r], by));
  }

  static void AddValues(const int8_t* values, const uint8_t* q, float d, float* o) {
    __m512i dots[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
    for (int four = 0; four < kQuantBlock; four += 4, values += 4 * kQuantBlock) {
      const __m512i weights = Four(q + four);
      dots[0] = _mm512_dpbusd_epi32(dots[0], weights, _mm512_loadu_si512(values));
      dots[1] = _mm512_dpbusd_epi32(dots[1], weights, _mm512_loadu_si512(values + 64));
    }
    const __m512 scale = _mm512_set1_ps(d);
    for (int v = 0; v < 2; ++v) {
      const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[v]), scale, _mm512_loadu_ps(o + 16 * v));
      _mm512_storeu_ps(o + 16 * v, sum);
    }
  }
};

}  // namespace

void ScoresI8(const ScoresArgs& a) { IntegerScores<Set>(a); }
void ValuesI8(const ValuesArgs& a) { IntegerChunkValues<Set>(a); }
void GatheredValuesI8(const GatheredValuesArgs& a) { IntegerGatheredValues<Set>(a); }

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
