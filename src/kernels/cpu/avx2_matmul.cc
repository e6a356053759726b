// SPDX-License-Identifier: Apache-2.0
//
// Matrix products, AVX2. A q8 tile is R rows of x against one group of 16 output rows, taken as two vectors
// of 8 lanes, so that every broadcast of x serves both. With four rows the sums of 16-bit products fill half
// the registers and the float sums go through the stack, which costs less than a second broadcast would.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/avx2_products.h"
#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/float_rows.h"
#include "kernels/cpu/weight_traits.h"
#include "kernels/cpu/weights_ahead.h"

namespace longspec::kernels::avx2 {
namespace {

// Scales and minima of one group, 8 lanes at a time.
template <WeightFormat F>
class GroupScales {
 public:
  GroupScales(const std::byte* group, int n_block)
      : scales_(group + static_cast<size_t>(n_block) * kBlockBytes<F>),
        minima_(scales_ + static_cast<size_t>(n_block) * kRowGroup * 2) {}

  __m256 Scale(int b, int v) const {
    if constexpr (kScaleBytes<F> == 1) return LoadExponents8(scales_ + At(b, v) / 2);
    return LoadHalf8(scales_ + At(b, v));
  }
  __m256 Minimum(int b, int v) const { return LoadHalf8(minima_ + At(b, v)); }

 private:
  static size_t At(int b, int v) { return static_cast<size_t>(b * kRowGroup + v * 8) * 2; }

  const std::byte *scales_, *minima_;
};

// dot (+)= the products of line J of a block's weights, for weights of at most five bits.
template <WeightFormat F, int J, int R>
[[gnu::always_inline]] inline void AddLine(const std::byte* w, const Q8Block* const* x, int b,
                                           __m256i (&dot)[R][kVectors]) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const __m256i weights = Line<F, J>(w, v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i pairs = _mm256_maddubs_epi16(weights, Broadcast4(x[r][b].q + 4 * J));
      dot[r][v] = J % 4 == 0 ? pairs : _mm256_add_epi16(dot[r][v], pairs);
      KeepInRegister(dot[r][v]);
    }
  }
}

// The integer dots of 16 output rows with half I of one block of x, for weights of at most five bits.
// Products of a weight and an int8 add up to at most 4 * 2 * 31 * 127 = 31496 per 16-bit lane, so one
// widening at the end is enough. Half after half, so that the sums of both need not be in registers at once.
template <WeightFormat F, int I, int R>
[[gnu::always_inline]] inline void NarrowHalf(const std::byte* w, const Q8Block* const* x, int b,
                                              __m256i (&dot)[R][kVectors]) {
  AddLine<F, 4 * I, R>(w, x, b, dot);
  AddLine<F, 4 * I + 1, R>(w, x, b, dot);
  AddLine<F, 4 * I + 2, R>(w, x, b, dot);
  AddLine<F, 4 * I + 3, R>(w, x, b, dot);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm256_madd_epi16(dot[r][v], _mm256_set1_epi16(1));
  }
}

// The same for weights of 8 bits: |w| * (x with w's sign) keeps the unsigned-by-signed product within 2 * 128
// * 127 = 32512.
template <WeightFormat F, int J, int R>
[[gnu::always_inline]] inline void AddWideLine(const std::byte* w, const Q8Block* const* x, int b,
                                               __m256i (&dot)[R][kVectors]) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const __m256i weights = Less128(Line<F, J>(w, v));
    const __m256i magnitude = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i signed_x = _mm256_sign_epi8(Broadcast4(x[r][b].q + 4 * J), weights);
      const __m256i fours =
          _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), _mm256_set1_epi16(1));
      dot[r][v] = J % 4 == 0 ? fours : _mm256_add_epi32(dot[r][v], fours);
      KeepInRegister(dot[r][v]);
    }
  }
}

template <WeightFormat F, int I, int R>
[[gnu::always_inline]] inline void WideHalf(const std::byte* w, const Q8Block* const* x, int b,
                                            __m256i (&dot)[R][kVectors]) {
  AddWideLine<F, 4 * I, R>(w, x, b, dot);
  AddWideLine<F, 4 * I + 1, R>(w, x, b, dot);
  AddWideLine<F, 4 * I + 2, R>(w, x, b, dot);
  AddWideLine<F, 4 * I + 3, R>(w, x, b, dot);
}

// The dots of half I as floats.
template <WeightFormat F, int I, int R>
[[gnu::always_inline]] inline void HalfDots(const std::byte* w, const Q8Block* const* x, int b,
                                            __m256 (&value)[R][kVectors]) {
  __m256i dot[R][kVectors];
  if constexpr (kOffset<F> == 128) {
    WideHalf<F, I, R>(w, x, b, dot);
  } else {
    NarrowHalf<F, I, R>(w, x, b, dot);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kOffset<F> == 8 || kOffset<F> == 16) {  // what was added to weights
        const __m256i less = _mm256_slli_epi32(_mm256_set1_epi32(x[r][b].less_8[I]), kOffset<F> / 16);
        dot[r][v] = _mm256_add_epi32(dot[r][v], less);
      }
      value[r][v] = _mm256_cvtepi32_ps(dot[r][v]);
    }
  }
}

// R rows against one group. `ahead` fetches what is read soon.
template <WeightFormat F, int R, typename Ahead>
[[gnu::always_inline]] inline void Q8TileInline(const MatmulQ8Args& a, int group, int row,
                                                const Ahead& ahead) {
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  const std::byte* quants = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const GroupScales<F> scales(quants, n_block);
  const Q8Block* x[R];
  for (int r = 0; r < R; ++r) x[r] = a.x + int64_t{row + r} * n_block;

  // Sums, then half 0's share of the block. With few rows they stay in registers. With more, half the
  // registers hold sums of 16-bit products, and these are in memory on purpose: a compiler that is left to
  // spill them moves each several times, where an fma reads one from memory at no cost.
  constexpr bool kInMemory = R > 2;
  constexpr int kTile = R * kVectors;
  __m256 lanes[2 * kTile];
  __m256* acc = lanes;
  if constexpr (kInMemory) Forget(acc);
#pragma GCC unroll 8
  for (int i = 0; i < kTile; ++i) acc[i] = _mm256_setzero_ps();
  for (int b = 0; b < n_block; ++b) {
    const std::byte* w = quants + static_cast<size_t>(b) * kBlockBytes<F>;
    ahead.Fetch(b);
    __m256 value[R][kVectors];
    HalfDots<F, 0, R>(w, x, b, value);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 d = _mm256_set1_ps(x[r][b].d[0]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        acc[kTile + r * kVectors + v] = _mm256_mul_ps(value[r][v], d);
      }
    }
    if constexpr (kInMemory) Forget(acc);
    HalfDots<F, 1, R>(w, x, b, value);
    __m256 scale[kVectors], minimum[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = scales.Scale(b, v);
      if constexpr (kHasMin<F>) minimum[v] = scales.Minimum(b, v);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 d = _mm256_set1_ps(x[r][b].d[1]);
      [[maybe_unused]] const __m256 s = _mm256_set1_ps(x[r][b].s);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const int i = r * kVectors + v;
        const __m256 scaled = _mm256_fmadd_ps(value[r][v], d, acc[kTile + i]);
        acc[i] = _mm256_fmadd_ps(scale[v], scaled, acc[i]);
        if constexpr (kHasMin<F>) acc[i] = _mm256_fmadd_ps(minimum[v], s, acc[i]);
      }
    }
    if constexpr (kInMemory) Forget(acc);
  }
  const int64_t first = int64_t{group} * kRowGroup, left = a.w->n_out - first;
  float* y = a.y + row * a.y_stride + first;
  if (left < kRowGroup) {
    __m256 few[kTile];
#pragma GCC unroll 8
    for (int i = 0; i < kTile; ++i) few[i] = acc[i];
    return StoreFewLanes(reinterpret_cast<const float*>(few), R, left, y, a.y_stride, a.add);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r, y += a.y_stride) {
    StoreVector(y, acc[r * kVectors], a.add);
    StoreVector(y + 8, acc[r * kVectors + 1], a.add);
  }
}

template <WeightFormat F, int R, int L>
[[gnu::noinline]] void Q8Tile(const MatmulQ8Args& a, int group, int row, const std::byte* next) {
  Q8TileInline<F, R>(a, group, row, LinesAhead<L>(next));
}

// One or two rows pass once over the weights: reading them is the cost.
template <WeightFormat F, int R>
void Q8FewRows(const MatmulQ8Args& a) {
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  for (int group = a.group_begin; group < a.group_end; ++group) {
    const std::byte* weights = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
    Q8TileInline<F, R>(a, group, 0, WeightsAhead<F>(weights, AfterGroup(a, group), n_block));
  }
}

// More rows take longer, and the memory would idle meanwhile: each pass over a group fetches its part of the
// next one.
template <WeightFormat F>
void Q8Groups(const MatmulQ8Args& a) {
  if (a.n_rows == 1) return Q8FewRows<F, 1>(a);
  if (a.n_rows == 2) return Q8FewRows<F, 2>(a);
  constexpr int kLines = kBlockLines<F>, kHalf = (kLines + 1) / 2;
  const size_t group_bytes = a.w->group_bytes, n_block = static_cast<size_t>(a.w->n_in / kQuantBlock);
  for (int group = a.group_begin; group < a.group_end; ++group) {
    const std::byte *const after = AfterGroup(a, group), *next = after;
    if (a.n_rows == 4) {
      Q8Tile<F, 4, kLines>(a, group, 0, next);
      continue;
    }
    int row = 0;
    for (; row + 4 <= a.n_rows; row += 4) {
      Q8Tile<F, 4, kHalf>(a, group, row, next);
      next += n_block * 64 * kHalf;
      // Once all of it was asked for: lines that are in the cache.
      if (next >= after + group_bytes) next = a.w->data + static_cast<size_t>(group) * group_bytes;
    }
    switch (a.n_rows - row) {
      case 3:
        Q8Tile<F, 3, kLines>(a, group, row, next);
        break;
      case 2:
        Q8Tile<F, 2, kLines>(a, group, row, next);
        break;
      case 1:
        Q8Tile<F, 1, kLines>(a, group, row, next);
        break;
      default:
        break;
    }
  }
}

template <WeightFormat F>
void FloatGroups(const MatmulFloatArgs& a) {
  ForEachFloatTile(a, [&](auto rows, auto groups, int group, int row) {
    FloatTile<Lanes, F, decltype(rows)::kValue, decltype(groups)::kValue, false>(a, group, row);
  });
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
  for (int i = 0; i < n; i += 16) {
    float rest[16] = {};
    const float* from = x + i;
    if (i + 16 > n) {
      std::memcpy(rest, from, static_cast<size_t>(n - i) * sizeof(float));
      from = rest;
    }
    const __m256i low = _mm256_castps_si256(RoundToBf16(_mm256_loadu_ps(from)));
    const __m256i high = _mm256_castps_si256(RoundToBf16(_mm256_loadu_ps(from + 8)));
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(low, 16), _mm256_srli_epi32(high, 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(packed, 0xD8));
  }
  const int end = (n + 15) / 16 * 16;
  if (end % kAmxBlock != 0)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + end), _mm256_setzero_si256());
}

void QuantizeQ8(const float* x, int n, Q8Block* out) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256i most_finite = _mm256_set1_epi32(0x7F7FFFFF);
  for (int b = 0; b < n / kQuantBlock; ++b, x += kQuantBlock) {
    Q8Block& block = out[b];
    __m256 v[4];  // half 0 is v[0] and v[1]
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
    // Magnitudes as integers: their order is that of the numbers, then infinity, then NaN.
    __m256i m[4];
    for (int i = 0; i < 4; ++i) m[i] = _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude);
    const __m256i m0 = _mm256_max_epi32(m[0], m[1]), m1 = _mm256_max_epi32(m[2], m[3]);
    // From here on the lower 128 bits speak of half 0, the upper ones of half 1.
    __m256i most =
        _mm256_max_epi32(_mm256_permute2x128_si256(m0, m1, 0x20), _mm256_permute2x128_si256(m0, m1, 0x31));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0x4E));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0xB1));
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(most, most_finite)) != 0) {
      block = kNoNumbersQ8;
      continue;
    }
    const __m256 largest = _mm256_castsi256_ps(most);
    const __m256 tiny = _mm256_cmp_ps(largest, _mm256_set1_ps(0x1.0p-120F), _CMP_LT_OQ);
    const __m256 inverse = _mm256_andnot_ps(tiny, _mm256_div_ps(_mm256_set1_ps(127.0F), largest));
    const __m256 inverses[2] = {_mm256_permute2f128_ps(inverse, inverse, 0x00),
                                _mm256_permute2f128_ps(inverse, inverse, 0x11)};
    __m256i q[4];
    for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverses[i / 2]));
    // packs works within 128 bits: the permutation undoes its interleaving.
    const __m256i w0 = _mm256_packs_epi32(q[0], q[1]), w1 = _mm256_packs_epi32(q[2], q[3]);
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(block.q),
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(w0, w1), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(w0, ones), _mm256_madd_epi16(w1, ones));
    const __m256i fours = _mm256_hadd_epi32(pairs, pairs);
    const __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const __m256 d = _mm256_div_ps(largest, _mm256_set1_ps(127.0F));
    const __m128 ds = _mm_unpacklo_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
    // d and less_8 lie together, then less_128, s and what is unused.
    const __m128i less = _mm_sub_epi32(_mm_setzero_si128(), sums);
    const __m128i less_8 = _mm_slli_epi32(less, 3), less_128 = _mm_slli_epi32(less, 7);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.d), _mm_unpacklo_epi64(_mm_castps_si128(ds), less_8));
    const __m128 products = _mm_mul_ps(ds, _mm_cvtepi32_ps(sums));
    const __m128 s =
        _mm_fmadd_ss(_mm_movehdup_ps(ds), _mm_cvtepi32_ps(_mm_shuffle_epi32(sums, 0xB1)), products);
    const __m128i s_alone = _mm_castps_si128(_mm_insert_ps(s, s, 0x0E));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.less_128), _mm_unpacklo_epi64(less_128, s_alone));
  }
}

}  // namespace longspec::kernels::avx2
