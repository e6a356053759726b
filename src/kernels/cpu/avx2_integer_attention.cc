// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8", AVX2. Products of bytes are added in pairs to 16 bits, which they fit: of 127
// and 128, twice. One factor must be unsigned there: of a key's it is the magnitude, its sign goes to the
// query's; weights have none.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/integer_lanes_avx2.h"

namespace longspec::kernels::avx2 {
namespace {

inline __m256i Load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Adds sums of fours, in this order: compilers may add integers in any, and choose one in which neither sums
// nor what is to be added fit the registers.
[[gnu::always_inline]] inline void AddPairs(__m256i pairs, __m256i& dots) {
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  asm("vpaddd %1, %0, %0" : "+x"(dots) : "x"(fours));
}

struct Set : IntegerLanesAvx2 {
  static constexpr int kQueryRows = 4;

  template <int R>
  [[gnu::always_inline]] static void ScoreBlock(const std::byte* block, int head_dim,
                                                const IntegerQueries<R>& queries, float scale, float* out,
                                                int64_t out_stride) {
    const std::byte* scales = block + static_cast<size_t>(head_dim) * kKeyGroup;
    __m256 sums[R][2];
    for (auto& row : sums) row[0] = row[1] = _mm256_setzero_ps();
    for (int group = 0; group * kQuantBlock < head_dim; ++group, scales += 2 * kKeyGroup) {
      __m256i dots[R][2];
      for (auto& row : dots) row[0] = row[1] = _mm256_setzero_si256();
#pragma GCC unroll 1
      for (int d = 0; d < kQuantBlock; d += 4, block += 4 * kKeyGroup) {
        const __m256i k0 = Load32(block), k1 = Load32(block + 32);
        const __m256i size0 = _mm256_abs_epi8(k0), size1 = _mm256_abs_epi8(k1);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m256i q = BroadcastFour(queries.q[r] + group * kQuantBlock + d);
          AddPairs(_mm256_maddubs_epi16(size0, _mm256_sign_epi8(q, k0)), dots[r][0]);
          AddPairs(_mm256_maddubs_epi16(size1, _mm256_sign_epi8(q, k1)), dots[r][1]);
        }
      }
      const __m256 dk0 = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
      const __m256 dk1 = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + 16)));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 dq = _mm256_set1_ps(queries.d[r][group]);
        sums[r][0] = _mm256_fmadd_ps(dk0, _mm256_mul_ps(_mm256_cvtepi32_ps(dots[r][0]), dq), sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(dk1, _mm256_mul_ps(_mm256_cvtepi32_ps(dots[r][1]), dq), sums[r][1]);
      }
    }
    const __m256 by = _mm256_set1_ps(scale);
    for (int r = 0; r < R; ++r, out += out_stride) {
      _mm256_storeu_ps(out, _mm256_mul_ps(sums[r][0], by));
      _mm256_storeu_ps(out + 8, _mm256_mul_ps(sums[r][1], by));
    }
  }

  [[gnu::always_inline]] static void AddValues(const int8_t* values, const uint8_t* q, float d, float* o) {
    __m256i dots[4] = {};
#pragma GCC unroll 8
    for (int four = 0; four < kQuantBlock; four += 4, values += 4 * kQuantBlock) {
      const __m256i weights = BroadcastFour(q + four);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) AddPairs(_mm256_maddubs_epi16(weights, Load32(values + 32 * v)), dots[v]);
    }
    const __m256 scale = _mm256_set1_ps(d);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[v]), scale, _mm256_loadu_ps(o + 8 * v));
      _mm256_storeu_ps(o + 8 * v, sum);
    }
  }
};

}  // namespace

void ScoresI8(const ScoresArgs& a) { IntegerScores<Set>(a); }
void ValuesI8(const ValuesArgs& a) { IntegerChunkValues<Set>(a); }
void GatheredValuesI8(const GatheredValuesArgs& a) { IntegerGatheredValues<Set>(a); }

}  // namespace longspec::kernels::avx2
