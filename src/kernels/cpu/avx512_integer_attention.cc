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

// Where the four numbers 4 f to 4 f + 3 of group g lie: two groups share a vector, in the order in which they
// are packed.
constexpr int PlaceOf(int g, int f) { return g / 2 * 64 + f % 4 * 16 + g % 2 * 8 + f / 4 * 4; }

struct Set : IntegerLanesAvx2 {
  static constexpr int kQueryRows = 8, kValueRows = 6;
  static constexpr bool kPreparesKeys = false;

  struct Query {
    alignas(64) int8_t q[kMaxHeadDim];
    float d[kMostGroups];
    int32_t less_128[kMostGroups];  // -128 times the sum of the 32 q
  };
  struct Weights {
    alignas(64) uint8_t q[kMaxHeadDim];
    float d[kMostGroups];
  };
  using Keys = KeyBlock;

  static void PrepareQuery(const float* x, int head_dim, Query& query) {
    ForGroups(head_dim / kQuantBlock, [&](auto n, int group) {
      constexpr int kGroups = decltype(n)::kValue;
      const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
      __m512 v[kGroups][2];
      __m512i most[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        v[g][0] = _mm512_loadu_ps(x + (group + g) * kQuantBlock);
        v[g][1] = _mm512_loadu_ps(x + (group + g) * kQuantBlock + 16);
        most[g] = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v[g][0]), magnitude),
                                   _mm512_and_si512(_mm512_castps_si512(v[g][1]), magnitude));
      }
      __m512i q[(kGroups + 1) / 2];
      Round(v, most, q, query.d + group);
#pragma GCC unroll 2
      for (int i = 0; i < (kGroups + 1) / 2; ++i) {
        _mm512_store_si512(query.q + group * kQuantBlock + 64 * i, q[i]);
        const __m512i fours =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(static_cast<char>(128)), q[i]);
        const __m256i eight =
            _mm256_add_epi32(_mm512_castsi512_si256(fours), _mm512_extracti64x4_epi64(fours, 1));
        const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        const __m128i less = _mm_sub_epi32(_mm_setzero_si128(), _mm_hadd_epi32(four, four));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(query.less_128 + group + 2 * i), less);
      }
    });
  }

  static void PrepareKeys(const std::byte* block, int /*head_dim*/, Keys& keys) { keys.block = block; }

  static void PrepareWeights(const float* p, const float (*scales)[kQuantBlock], int n_groups, int n,
                             Weights& weights) {
    const __mmask16 seen[2] = {FirstLanes(n), FirstLanes(n > 16 ? n - 16 : 0)};
    const __m512 of_key[2] = {_mm512_maskz_loadu_ps(seen[0], p), _mm512_maskz_loadu_ps(seen[1], p + 16)};
    ForGroups(n_groups, [&](auto count, int group) {
      constexpr int kGroups = decltype(count)::kValue;
      __m512 x[kGroups][2];
      __m512i most[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        for (int half = 0; half < 2; ++half) {
          const __m512 scale = _mm512_load_ps(scales[group + g] + 16 * half);
          x[g][half] = _mm512_maskz_mov_ps(seen[half], _mm512_mul_ps(of_key[half], scale));
        }
        most[g] = _mm512_max_epu32(_mm512_castps_si512(x[g][0]), _mm512_castps_si512(x[g][1]));
      }
      __m512i q[(kGroups + 1) / 2];
      Round(x, most, q, weights.d + group);
#pragma GCC unroll 2
      for (int i = 0; i < (kGroups + 1) / 2; ++i)
        _mm512_store_si512(weights.q + group * kQuantBlock + 64 * i, q[i]);
    });
  }

  template <int R>
  [[gnu::always_inline]] static void ScoreBlock(const Keys& keys, int head_dim, const Query* queries,
                                                float scale, float* out, int64_t out_stride) {
    const std::byte* block = keys.block;
    const std::byte* scales = block + static_cast<size_t>(head_dim) * kKeyGroup;
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(128));
    __m512 sums[R];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    for (int group = 0; group * kQuantBlock < head_dim; ++group, scales += 2 * kKeyGroup) {
      __m512i dots[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) dots[r] = _mm512_set1_epi32(queries[r].less_128[group]);
      const int place = PlaceOf(group, 0);
#pragma GCC unroll 8
      for (int f = 0; f < 8; ++f, block += 4 * kKeyGroup) {
        const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(block), offset);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          dots[r] = _mm512_dpbusd_epi32(dots[r], k, Four(queries[r].q + place + PlaceOf(0, f)));
      }
      const __m512 dk = LoadHalf16(scales);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 dq = _mm512_set1_ps(queries[r].d[group]);
        sums[r] = _mm512_fmadd_ps(dk, _mm512_mul_ps(_mm512_cvtepi32_ps(dots[r]), dq), sums[r]);
      }
    }
    const __m512 by = _mm512_set1_ps(scale);
    for (int r = 0; r < R; ++r, out += out_stride) _mm512_storeu_ps(out, _mm512_mul_ps(sums[r], by));
  }

  template <int R>
  [[gnu::always_inline]] static void AddValues(const int8_t* values, const Weights* weights, int group,
                                               float* o, int64_t o_stride) {
    const int place = PlaceOf(group, 0);
    __m512i dots[R][2];
    for (auto& row : dots) row[0] = row[1] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int f = 0; f < 8; ++f, values += 4 * kQuantBlock) {
      const __m512i v[2] = {_mm512_load_si512(values), _mm512_load_si512(values + 64)};
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i q = Four(weights[r].q + place + PlaceOf(0, f));
        dots[r][0] = _mm512_dpbusd_epi32(dots[r][0], q, v[0]);
        dots[r][1] = _mm512_dpbusd_epi32(dots[r][1], q, v[1]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r, o += o_stride) {
      const __m512 d = _mm512_set1_ps(weights[r].d[group]);
      const __m512 first = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][0]), d, _mm512_loadu_ps(o));
      const __m512 second = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][1]), d, _mm512_loadu_ps(o + 16));
      _mm512_storeu_ps(o, first);
      _mm512_storeu_ps(o + 16, second);
    }
  }

 private:
  // `most`: bits of magnitudes. Integers of two groups share a vector, as PlaceOf says.
  template <int N>
  [[gnu::always_inline]] static void Round(const __m512 (&x)[N][2], const __m512i (&most)[N],
                                           __m512i (&q)[(N + 1) / 2], float* d) {
    const auto larger_of_two = [](__m512i a, __m512i b) {
      return _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i first = larger_of_two(most[0], most[N > 1 ? 1 : 0]);
    const __m512i second = N > 2 ? larger_of_two(most[N > 2 ? 2 : 0], most[N > 2 ? 3 : 0]) : first;
    const __m512i of_four =
        _mm512_max_epu32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    const __m256i half =
        _mm256_max_epu32(_mm512_castsi512_si256(of_four), _mm512_extracti64x4_epi64(of_four, 1));
    const __m512 inverses = _mm512_broadcast_f32x4(
        Inverses<N>(_mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)), d));
    const __m512 inverse[4] = {
        _mm512_shuffle_ps(inverses, inverses, 0x00), _mm512_shuffle_ps(inverses, inverses, 0x55),
        _mm512_shuffle_ps(inverses, inverses, 0xAA), _mm512_shuffle_ps(inverses, inverses, 0xFF)};
    __m512i words[N];
#pragma GCC unroll 4
    for (int g = 0; g < N; ++g)
      words[g] = _mm512_packs_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x[g][0], inverse[g])),
                                    _mm512_cvtps_epi32(_mm512_mul_ps(x[g][1], inverse[g])));
#pragma GCC unroll 2
    for (int i = 0; i < (N + 1) / 2; ++i)
      q[i] = _mm512_packs_epi16(words[2 * i], words[2 * i + (N > 1 ? 1 : 0)]);
  }
};

}  // namespace

void ScoresI8(const ScoresArgs& a) { IntegerScores<Set>(a); }
void ValuesI8(const ValuesArgs& a) { IntegerChunkValues<Set>(a); }
void GatheredValuesI8(const GatheredValuesArgs& a) { IntegerGatheredValues<Set>(a); }

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
