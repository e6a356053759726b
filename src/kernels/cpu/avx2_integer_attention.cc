// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8", AVX2. Of scores, keys are widened to 16 bits once for all rows, and products
// are added in pairs to 32. Of weighted values, whose one factor has no sign, products of bytes are added in
// pairs to 16 bits, which they fit: of 127 and 128, twice.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/integer_lanes_avx2.h"

namespace longspec::kernels::avx2 {
namespace {

inline __m256i Load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// In this order: compilers may add integers in any, and choose one in which neither sums nor what is to be
// added fit the registers.
[[gnu::always_inline]] inline void Add(__m256i more, __m256i& dots) {
  asm("vpaddd %1, %0, %0" : "+x"(dots) : "x"(more));
}

struct Set : IntegerLanesAvx2 {
  static constexpr int kQueryRows = 4, kValueRows = 4;
  static constexpr bool kPreparesKeys = true;

  struct Query {
    alignas(32) int16_t q[kMaxHeadDim];  // of each four dimensions 0, 2, 1, 3
    float d[kMostGroups];
  };
  struct Weights {
    alignas(32) uint8_t q[kMaxHeadDim];  // of each group in the order of PlaceOf
    float d[kMostGroups];
  };
  struct Keys {
    alignas(32) int16_t of_four[kMaxHeadDim / 4][4][kKeyGroup];  // dimensions 0 and 2 of keys 0 to 7; 1 and
                                                                 // 3; the same of keys 8 to 15
    alignas(32) float scales[kMostGroups][kKeyGroup];
  };

  static void PrepareQuery(const float* x, int head_dim, Query& query) {
    ForGroups(head_dim / kQuantBlock, [&](auto n, int group) {
      constexpr int kGroups = decltype(n)::kValue;
      const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
      const float* of_group = x + group * kQuantBlock;
      __m256i most[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        __m256 v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          v[i] = _mm256_and_ps(_mm256_loadu_ps(of_group + g * kQuantBlock + 8 * i), magnitude);
        most[g] = Largest(v);
      }
      __m256 inverse[4];
      SpreadInverses<kGroups>(most, query.d + group, inverse);
      const __m256i order =
          _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const float* of_half = of_group + g * kQuantBlock + 16 * i;
          const __m256i words = _mm256_packs_epi32(Rounded(_mm256_loadu_ps(of_half), inverse[g]),
                                                   Rounded(_mm256_loadu_ps(of_half + 8), inverse[g]));
          const __m256i in_order = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(words, 0xD8), order);
          _mm256_store_si256(reinterpret_cast<__m256i*>(query.q + (group + g) * kQuantBlock + 16 * i),
                             in_order);
        }
      }
    });
  }

  static void PrepareKeys(const std::byte* block, int head_dim, Keys& keys) {
    for (int f = 0; f < head_dim / 4; ++f, block += 4 * kKeyGroup) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i k = Load32(block + 32 * half);
        Store(_mm256_srai_epi16(_mm256_slli_epi16(k, 8), 8), keys.of_four[f][2 * half]);
        Store(_mm256_srai_epi16(k, 8), keys.of_four[f][2 * half + 1]);
      }
    }
    for (int group = 0; group * kQuantBlock < head_dim; ++group, block += 2 * kKeyGroup) {
      for (int half = 0; half < 2; ++half) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * half));
        _mm256_store_ps(keys.scales[group] + 8 * half, _mm256_cvtph_ps(halves));
      }
    }
  }

  static void PrepareWeights(const float* p, const float (*scales)[kQuantBlock], int n_groups, int n,
                             Weights& weights) {
    if (n >= kQuantBlock) return PrepareSeen(p, scales, n_groups, weights);
    alignas(32) float seen[kMostGroups][kQuantBlock], ones[kQuantBlock];
    for (float& one : ones) one = 1.0F;
    for (int g = 0; g < n_groups; ++g) {
      for (int i = 0; i < kQuantBlock; ++i) seen[g][i] = i < n ? p[i] * scales[g][i] : 0.0F;
    }
    PrepareSeen(ones, seen, n_groups, weights);
  }

  template <int R>
  [[gnu::always_inline]] static void ScoreBlock(const Keys& keys, int head_dim, const Query* queries,
                                                float scale, float* out, int64_t out_stride) {
    __m256 sums[R][2];
    for (auto& row : sums) row[0] = row[1] = _mm256_setzero_ps();
    for (int group = 0; group * kQuantBlock < head_dim; ++group) {
      __m256i dots[R][2];
      for (auto& row : dots) row[0] = row[1] = _mm256_setzero_si256();
#pragma GCC unroll 1
      for (int f = 8 * group; f < 8 * group + 8; ++f) {
        const __m256i first[2] = {Load32(keys.of_four[f][0]), Load32(keys.of_four[f][1])};
        const __m256i second[2] = {Load32(keys.of_four[f][2]), Load32(keys.of_four[f][3])};
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
          for (int pair = 0; pair < 2; ++pair) {
            const __m256i q = BroadcastFour(queries[r].q + 4 * f + 2 * pair);
            Add(_mm256_madd_epi16(first[pair], q), dots[r][0]);
            Add(_mm256_madd_epi16(second[pair], q), dots[r][1]);
          }
        }
      }
      const __m256 dk0 = _mm256_load_ps(keys.scales[group]), dk1 = _mm256_load_ps(keys.scales[group] + 8);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 dq = _mm256_set1_ps(queries[r].d[group]);
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

  template <int R>
  [[gnu::always_inline]] static void AddValues(const int8_t* values, const Weights* weights, int group,
                                               float* o, int64_t o_stride) {
#pragma GCC unroll 1
    for (int r = 0; r < R; ++r, o += o_stride)
      AddRow(values, weights[r].q + group * kQuantBlock, weights[r].d[group], o);
  }

 private:
  // Where the four numbers 4 f to 4 f + 3 of a group lie, in the order in which they are packed.
  static constexpr int PlaceOf(int f) { return f % 2 * 16 + f / 2 * 4; }

  static void Store(__m256i v, void* to) { _mm256_store_si256(static_cast<__m256i*>(to), v); }

  static __m256i Rounded(__m256 x, __m256 inverse) { return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse)); }

  // As bits.
  [[gnu::always_inline]] static __m256i Largest(const __m256 (&x)[4]) {
    const __m256i first = _mm256_max_epu32(_mm256_castps_si256(x[0]), _mm256_castps_si256(x[1]));
    const __m256i second = _mm256_max_epu32(_mm256_castps_si256(x[2]), _mm256_castps_si256(x[3]));
    return _mm256_max_epu32(first, second);
  }

  [[gnu::always_inline]] static __m256i LargerOfTwo(__m256i a, __m256i b) {
    return _mm256_max_epu32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  }

  // Stores scales, and makes vectors of what numbers are multiplied with.
  template <int N>
  [[gnu::always_inline]] static void SpreadInverses(const __m256i (&most)[N], float* d,
                                                    __m256 (&inverse)[4]) {
    const __m256i first = LargerOfTwo(most[0], most[N > 1 ? 1 : 0]);
    const __m256i second = N > 2 ? LargerOfTwo(most[N > 2 ? 2 : 0], most[N > 2 ? 3 : 0]) : first;
    const __m256i half =
        _mm256_max_epu32(_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second));
    const __m128 of_four =
        Inverses<N>(_mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)), d);
    const __m256 twice = _mm256_insertf128_ps(_mm256_castps128_ps256(of_four), of_four, 1);
    inverse[0] = _mm256_permute_ps(twice, 0x00);
    inverse[1] = _mm256_permute_ps(twice, 0x55);
    inverse[2] = _mm256_permute_ps(twice, 0xAA);
    inverse[3] = _mm256_permute_ps(twice, 0xFF);
  }

  static void PrepareSeen(const float* p, const float (*scales)[kQuantBlock], int n_groups,
                          Weights& weights) {
    const __m256 of_key[4] = {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16),
                              _mm256_loadu_ps(p + 24)};
    ForGroups(n_groups, [&](auto n, int group) {
      constexpr int kGroups = decltype(n)::kValue;
      const auto weights_of = [&](int g, __m256(&x)[4]) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          x[i] = _mm256_mul_ps(of_key[i], _mm256_load_ps(scales[group + g] + 8 * i));
      };
      __m256i most[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        __m256 x[4];
        weights_of(g, x);
        most[g] = Largest(x);
      }
      __m256 inverse[4];
      SpreadInverses<kGroups>(most, weights.d + group, inverse);
      asm volatile("" : : : "memory");  // multiplied anew: 16 vectors would not fit the registers
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        __m256 x[4];
        weights_of(g, x);
        const __m256i first = _mm256_packs_epi32(Rounded(x[0], inverse[g]), Rounded(x[1], inverse[g]));
        const __m256i second = _mm256_packs_epi32(Rounded(x[2], inverse[g]), Rounded(x[3], inverse[g]));
        Store(_mm256_packs_epi16(first, second), weights.q + (group + g) * kQuantBlock);
      }
    });
  }

  [[gnu::always_inline]] static void AddRow(const int8_t* values, const uint8_t* q, float d, float* o) {
    __m256i dots[4] = {};
#pragma GCC unroll 8
    for (int f = 0; f < 8; ++f, values += 4 * kQuantBlock) {
      const __m256i weights = BroadcastFour(q + PlaceOf(f));
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m256i pairs = _mm256_maddubs_epi16(weights, Load32(values + 32 * v));
        Add(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)), dots[v]);
      }
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
