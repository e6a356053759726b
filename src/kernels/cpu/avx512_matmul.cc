// SPDX-License-Identifier: Apache-2.0
//
// Matrix products, AVX-512 with VNNI. One vector is a group's 16 output rows; a q8 tile is R rows of x
// against one group, which share each unpacked weight. Float tiles of few rows take several groups, whose
// accumulators do not wait for each other.
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/avx512_products.h"
#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/float_rows.h"
#include "kernels/cpu/weight_traits.h"
#include "kernels/cpu/weights_ahead.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

// What the dot with half h of a block begins with. Stored bytes are unsigned, as vpdpbusd wants them: w
// itself, or w + 8, 16 or 128, and the sum of w * q is theirs less so many times the sum of q.
template <WeightFormat F>
[[gnu::always_inline]] inline __m512i FirstSum(const Q8Block& x, int h) {
  if constexpr (kOffset<F> == 8) return _mm512_set1_epi32(x.less_8[h]);
  if constexpr (kOffset<F> == 16) return _mm512_set1_epi32(2 * x.less_8[h]);
  if constexpr (kOffset<F> == 128) return _mm512_set1_epi32(x.less_128[h]);
  return _mm512_setzero_si512();
}

// Scales and minima of one group.
template <WeightFormat F>
class GroupScales {
 public:
  GroupScales(const std::byte* group, int64_t n_block)
      : scales_(group + static_cast<size_t>(n_block) * kBlockBytes<F>),
        minima_(scales_ + static_cast<size_t>(n_block) * kRowGroup * 2) {}

  __m512 Scale(int64_t b) const {
    if constexpr (kScaleBytes<F> == 1) return LoadExponents16(scales_ + b * kRowGroup);
    return LoadHalf16(scales_ + b * kRowGroup * 2);
  }
  __m512 Minimum(int64_t b) const { return LoadHalf16(minima_ + b * kRowGroup * 2); }

 private:
  const std::byte *scales_, *minima_;
};

// dot += the products of line J of a block's weights.
template <WeightFormat F, int J, int R>
[[gnu::always_inline]] inline void AddLine(const std::byte* w, const Q8Block* x, int64_t x_stride,
                                           __m512i (&dot)[R][2]) {
  const __m512i weights = Line<F, J>(w);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i q = Broadcast32(x[r * x_stride].q + 4 * J);
    dot[r][J / 4] = _mm512_dpbusd_epi32(dot[r][J / 4], weights, q);
  }
}

template <WeightFormat F, int R, int... J>
[[gnu::always_inline]] inline void AddLines(Lines<J...>, const std::byte* w, const Q8Block* x,
                                            int64_t x_stride, __m512i (&dot)[R][2]) {
  (AddLine<F, J>(w, x, x_stride, dot), ...);
}

// The integer dots of one group's block with both halves of R blocks of x. Sums of four products add up in 32
// bits, exactly.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void BlockDots(const std::byte* w, const Q8Block* x, int64_t x_stride,
                                             __m512i (&dot)[R][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) dot[r][h] = FirstSum<F>(x[r * x_stride], h);
  }
  AddLines<F>(Lines<0, 4, 1, 5, 2, 6, 3, 7>(), w, x, x_stride, dot);
}

// R rows against one group. `ahead` fetches at each block.
template <WeightFormat F, int R, class Ahead>
[[gnu::noinline]] void Q8Tile(const MatmulQ8Args& a, int group, int row, const Ahead& ahead) {
  const int64_t n_block = a.w->n_in / kQuantBlock;
  const std::byte* w = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const GroupScales<F> scales(w, n_block);
  const Q8Block* x = a.x + row * n_block;
  __m512 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < n_block; ++b, ++x, w += kBlockBytes<F>) {
    ahead.Fetch(static_cast<int>(b));
    __m512i dot[R][2];
    BlockDots<F, R>(w, x, n_block, dot);
    const __m512 d = scales.Scale(b);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Q8Block& block = x[r * n_block];
      const __m512 first = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_set1_ps(block.d[0]));
      const __m512 second = _mm512_cvtepi32_ps(dot[r][1]), d_second = _mm512_set1_ps(block.d[1]);
      acc[r] = _mm512_fmadd_ps(d, _mm512_fmadd_ps(second, d_second, first), acc[r]);
    }
    if constexpr (kHasMin<F>) {
      const __m512 m = scales.Minimum(b);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(x[r * n_block].s), acc[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) StoreGroup(a.y + (row + r) * a.y_stride, a.w->n_out, group, acc[r], a.add);
}

// A group's weights stay in the first-level cache while the tiles of rows pass over them, and the first pass
// fetches the next group, so that memory never idles.
template <WeightFormat F>
void Q8Groups(const MatmulQ8Args& a) {
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  for (int group = a.group_begin; group < a.group_end; ++group) {
    const std::byte *quants = a.w->data + static_cast<size_t>(group) * a.w->group_bytes,
                    *next = AfterGroup(a, group);
    ForEachTile<kMostRows>(a.n_rows, [&](auto rows, int row) {
      constexpr int kRows = decltype(rows)::kValue;
      if (row == 0) {
        Q8Tile<F, kRows>(a, group, row, FirstTileAhead<F, kRows>(quants, next, n_block));
      } else {
        Q8Tile<F, kRows>(a, group, row, LinesAhead<0>(next));
      }
    });
  }
}

// At most 16 sums; G groups' weights stay in the cache while the tiles of rows pass over them, and the first
// pass fetches the next ones.
template <WeightFormat F, int G>
int FloatGroupsBy(const MatmulFloatArgs& a, int group) {
  for (; group + G <= a.group_end; group += G) {
    ForEachTile<kMostRows>(a.n_rows, [&](auto rows, int row) {
      constexpr int kRows = decltype(rows)::kValue;
      if constexpr (kRows * G <= 16) {
        if (row == 0) {
          FloatTile<Lanes, F, kRows, G, true>(a, group, row);
        } else {
          FloatTile<Lanes, F, kRows, G, false>(a, group, row);
        }
      }
    });
  }
  return group;
}

template <WeightFormat F>
void FloatGroups(const MatmulFloatArgs& a) {
  int group = a.group_begin;
  if (a.n_rows <= 4) group = FloatGroupsBy<F, 4>(a, group);
  group = FloatGroupsBy<F, 2>(a, group);
  FloatGroupsBy<F, 1>(a, group);
}

}  // namespace

void MatmulQ8(const MatmulQ8Args& a) {
  WithQ8Format(a.w->format, [&](auto format) { Q8Groups<decltype(format)::kValue>(a); });
}

void MatmulFloat(const MatmulFloatArgs& a) {
  WithFloatFormat(a.w->format, [&](auto format) { FloatGroups<decltype(format)::kValue>(a); });
}

void MatmulBf16(const MatmulBf16Args& a) {
  if (a.w->format == WeightFormat::kBF16Amx) return MatmulInLanes<Lanes, Bf16Order::kTiles>(a);
  MatmulInLanes<Lanes, Bf16Order::kPairs>(a);
}

void RoundBf16(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n || i % kAmxBlock != 0; i += 16) {
    const __m512 rounded = RoundToBf16(_mm512_maskz_loadu_ps(FirstLanes(i < n ? n - i : 0), x + i));
    const __m512i bits = _mm512_srli_epi32(_mm512_castps_si512(rounded), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi32_epi16(bits));
  }
}

void QuantizeQ8(const float* x, int n, Q8Block* out) {
  for (int b = 0; b < n / kQuantBlock; ++b) {
    Q8Block& block = out[b];
    block = {};
    int32_t sum[2];
    unsigned wrong = 0;  // numbers that are not finite
    for (int h = 0; h < 2; ++h, x += kQuantBlock / 2) {
      const __m512 v = _mm512_loadu_ps(x);
      wrong |= _mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(__builtin_inff()), _CMP_NLT_UQ);
      const float largest = Lanes::MaxOf(_mm512_abs_ps(v));
      const __m512 inverse = _mm512_set1_ps(largest < 0x1.0p-120F ? 0.0F : 127.0F / largest);
      const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v, inverse));  // rounds to nearest even
      _mm_storeu_si128(reinterpret_cast<__m128i*>(block.q + 16 * h), _mm512_cvtsepi32_epi8(q));
      block.d[h] = largest / 127.0F;
      sum[h] = SumOf(q);
    }
    if (wrong != 0) {  // the sums of such q mean nothing
      block = kNoNumbersQ8;
      continue;
    }
    SetSums(sum[0], sum[1], block);
  }
}

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
