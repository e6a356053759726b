// SPDX-License-Identifier: Apache-2.0
//
// Matrix products, AVX2. A q8 tile is R rows of x against one group of 16 output rows, taken as two vectors
// of 8 lanes, so that every broadcast of x serves both. With four rows the sums of 16-bit products fill half
// the registers and the float sums go through the stack, which costs less than a second broadcast would.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/weight_traits.h"

namespace longspec::kernels::avx2 {
namespace {

constexpr int kVectors = 2;  // of 8 lanes: a group's 16 output rows

inline __m256i Broadcast4(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return _mm256_set1_epi32(four);
}

inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

inline __m256 LoadHalf8(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline void StoreVector(float* y, __m256 acc, bool add) {
  _mm256_storeu_ps(y, add ? _mm256_add_ps(_mm256_loadu_ps(y), acc) : acc);
}

// The last group of a matrix whose output rows are no multiple of a group: lanes [0, left).
[[gnu::noinline]] void StoreFewLanes(float* y, int64_t left, __m256 acc, bool add) {
  float lanes[8];
  _mm256_storeu_ps(lanes, acc);
  for (int64_t i = 0; i < left; ++i) y[i] = add ? y[i] + lanes[i] : lanes[i];
}

// Writes a group's 16 lanes of one row from output row `first` on, as far as the matrix has output rows.
inline void StoreGroup(float* y, int64_t n_out, int64_t first, const __m256 (&acc)[2], bool add) {
  if (first + kRowGroup <= n_out) {
    StoreVector(y + first, acc[0], add);
    StoreVector(y + first + 8, acc[1], add);
    return;
  }
  for (int v = 0; v < 2; ++v) {
    const int64_t at = first + 8 * v;
    if (at < n_out) StoreFewLanes(y + at, std::min<int64_t>(n_out - at, 8), acc[v], add);
  }
}

// Stops the compiler from moving the loads of later steps up until they no longer fit into registers.
inline void KeepInRegister(__m256i& v) { asm("" : "+x"(v)); }

// Scales and minima of one group, 8 lanes at a time.
template <WeightFormat F>
class GroupScales {
 public:
  GroupScales(const std::byte* group, int n_block) {
    scales_ = group + static_cast<size_t>(n_block) * kBlockBytes<F>;
    const auto n_number = static_cast<size_t>(kHasSuper<F> ? (n_block + 7) / 8 : n_block);
    minima_ = scales_ + n_number * kRowGroup * 2;
    factors_ = minima_ + (kHasMin<F> ? n_number * kRowGroup * 2 : 0);
    min_factors_ = factors_ + static_cast<size_t>(n_block) * kRowGroup;
  }

  // Of half I of block b.
  template <int I>
  __m256 Scale(int b, int v) const {
    if constexpr (!kHasSuper<F>) return LoadHalf8(scales_ + NumberAt(b, v));
    const __m256 d = LoadHalf8(scales_ + NumberAt(b / 8, v));
    if constexpr (kHasHalves<F>) {
      return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(LoadFactors(factors_, 2 * b + I, v))));
    }
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(LoadFactors(factors_, b, v))));
  }

  __m256 Minimum(int b, int v) const {
    if constexpr (!kHasSuper<F>) return LoadHalf8(minima_ + NumberAt(b, v));
    const __m256 m = LoadHalf8(minima_ + NumberAt(b / 8, v));
    const __m256 factor = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(LoadFactors(min_factors_, b, v)));
    return _mm256_xor_ps(_mm256_mul_ps(m, factor), _mm256_set1_ps(-0.0F));
  }

 private:
  static size_t NumberAt(int row, int v) { return static_cast<size_t>(row * kRowGroup + v * 8) * 2; }
  static __m128i LoadFactors(const std::byte* factors, int row, int v) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors + row * kRowGroup + v * 8));
  }

  const std::byte *scales_, *minima_, *factors_, *min_factors_;
};

// The integer dots of 16 output rows with half I of one block of x, for U4 weights: low nibbles are the first
// half's, high nibbles the second's. Products of a nibble and an int8 add up to at most 4 * 2 * 15 * 127 =
// 15240 per 16-bit lane, so one widening at the end is enough. Half after half, so that the sums of both need
// not be in registers at once.
template <int I, int R>
inline void U4Half(const std::byte* w, const Q8Block* const* x, int b, __m256i (&dot)[R][kVectors]) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m256i raw = LoadBytes(w + 64 * j + 32 * v);
      const __m256i weights = _mm256_and_si256(I == 0 ? raw : _mm256_srli_epi16(raw, 4), low);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i pairs = _mm256_maddubs_epi16(weights, Broadcast4(x[r][b].q + 16 * I + 4 * j));
        dot[r][v] = j == 0 ? pairs : _mm256_add_epi16(dot[r][v], pairs);
        KeepInRegister(dot[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm256_madd_epi16(dot[r][v], _mm256_set1_epi16(1));
  }
}

// The same for S8 weights: |w| * (x with w's sign) keeps the unsigned-by-signed product within 2 * 128 * 127
// = 32512.
template <int I, int R>
inline void S8Half(const std::byte* w, const Q8Block* const* x, int b, __m256i (&dot)[R][kVectors]) {
  const __m256i bias = _mm256_set1_epi8(-128);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m256i weights = _mm256_xor_si256(LoadBytes(w + 64 * (4 * I + j) + 32 * v), bias);
      const __m256i magnitude = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i signed_x = _mm256_sign_epi8(Broadcast4(x[r][b].q + 16 * I + 4 * j), weights);
        const __m256i fours =
            _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), _mm256_set1_epi16(1));
        dot[r][v] = j == 0 ? fours : _mm256_add_epi32(dot[r][v], fours);
        KeepInRegister(dot[r][v]);
      }
    }
  }
}

// sum = d[I] * the dots of half I, or where both halves share a weight scale, half 1's added to half 0's.
template <WeightFormat F, int I, int R>
inline void AddHalf(const std::byte* w, const Q8Block* const* x, int b, __m256 (&sum)[R][kVectors]) {
  __m256i dot[R][kVectors];
  if constexpr (kIsU4<F>) {
    U4Half<I, R>(w, x, b, dot);
  } else {
    S8Half<I, R>(w, x, b, dot);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const Q8Block& block = x[r][b];
    const __m256 d = _mm256_set1_ps(block.d[I]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (F == WeightFormat::kU4)
        dot[r][v] = _mm256_sub_epi32(dot[r][v], _mm256_set1_epi32(8 * block.sum[I]));
      const __m256 value = _mm256_cvtepi32_ps(dot[r][v]);
      sum[r][v] = I == 0 || kHasHalves<F> ? _mm256_mul_ps(value, d) : _mm256_fmadd_ps(value, d, sum[r][v]);
    }
  }
}

// acc += scale of half I * sum.
template <WeightFormat F, int I, int R>
inline void AddScaled(const GroupScales<F>& scales, int b, const __m256 (&sum)[R][kVectors],
                      __m256 (&acc)[R][kVectors]) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const __m256 d = scales.template Scale<I>(b, v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) acc[r][v] = _mm256_fmadd_ps(d, sum[r][v], acc[r][v]);
  }
}

// What a pass over a group's blocks asks memory for: `step` bytes a block, from `at` on.
struct Prefetch {
  const std::byte* at;
  size_t step;

  void Block(int b) const {
    for (size_t line = 0; line < step; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at + static_cast<size_t>(b) * step + line), _MM_HINT_T0);
    }
  }
};

template <WeightFormat F, int R>
void Q8Tile(const MatmulQ8Args& a, int group, int row, const Prefetch& prefetch) {
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  const std::byte* quants = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const GroupScales<F> scales(quants, n_block);
  const Q8Block* x[R];
  for (int r = 0; r < R; ++r) x[r] = a.x + int64_t{row + r} * n_block;

  __m256 acc[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_setzero_ps();
  }
  for (int b = 0; b < n_block; ++b) {
    const std::byte* w = quants + static_cast<size_t>(b) * kBlockBytes<F>;
    prefetch.Block(b);
    __m256 sum[R][kVectors];
    AddHalf<F, 0, R>(w, x, b, sum);
    if constexpr (kHasHalves<F>) AddScaled<F, 0, R>(scales, b, sum, acc);
    AddHalf<F, 1, R>(w, x, b, sum);
    AddScaled<F, 1, R>(scales, b, sum, acc);
    if constexpr (kHasMin<F>) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const __m256 m = scales.Minimum(b, v);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) acc[r][v] = _mm256_fmadd_ps(m, _mm256_set1_ps(x[r][b].s), acc[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    StoreGroup(a.y + (row + r) * a.y_stride, a.w->n_out, int64_t{group} * kRowGroup, acc[r], a.add);
  }
}

template <WeightFormat F>
void Q8Groups(const MatmulQ8Args& a) {
  constexpr size_t kAhead = 2048;
  const size_t group_bytes = a.w->group_bytes, n_block = static_cast<size_t>(a.w->n_in / kQuantBlock);
  // Few rows pass once over a group: reading weights is the cost, and a little ahead is far enough. More rows
  // pass several times, and the memory would idle meanwhile: each pass fetches its part of the next group.
  const size_t passes = a.n_rows <= 2 ? 1 : static_cast<size_t>((a.n_rows + 3) / 4);
  const size_t step = (group_bytes / n_block / passes + 63) / 64 * 64;
  for (int group = a.group_begin; group < a.group_end; ++group) {
    const std::byte* weights = a.w->data + static_cast<size_t>(group) * group_bytes;
    if (a.n_rows == 1) {
      Q8Tile<F, 1>(a, group, 0, {weights + kAhead, kBlockBytes<F>});
      continue;
    }
    if (a.n_rows == 2) {
      Q8Tile<F, 2>(a, group, 0, {weights + kAhead, kBlockBytes<F>});
      continue;
    }
    Prefetch next{weights + group_bytes, step};
    int row = 0;
    for (; row + 4 <= a.n_rows; row += 4) {
      Q8Tile<F, 4>(a, group, row, next);
      next.at += n_block * step;
      // Once all of the next group was asked for, a pass has nothing more to fetch.
      if (next.at >= weights + 2 * group_bytes) next.step = 0;
    }
    switch (a.n_rows - row) {
      case 3:
        Q8Tile<F, 3>(a, group, row, next);
        break;
      case 2:
        Q8Tile<F, 2>(a, group, row, next);
        break;
      case 1:
        Q8Tile<F, 1>(a, group, row, next);
        break;
      default:
        break;
    }
  }
}

template <WeightFormat F>
inline __m256 LoadWeights8(const std::byte* group, int64_t k, int half) {
  const auto index = static_cast<size_t>(k) * kRowGroup + static_cast<size_t>(half) * 8;
  if constexpr (F == WeightFormat::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(group + index * 4));
  } else if constexpr (F == WeightFormat::kF16) {
    return LoadHalf8(group + index * 2);
  } else {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + index * 2));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
}

// R rows against G groups: one fma chain per (row, output row) is the arithmetic, so independent chains hide
// its latency.
template <WeightFormat F, int R, int G>
void FloatTile(const MatmulFloatArgs& a, int group, int row) {
  __m256 acc[R][G][2];
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) acc[r][g][0] = acc[r][g][1] = _mm256_setzero_ps();
  }
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const float* x = a.x + row * a.x_stride;
  for (int64_t k = 0; k < a.w->n_in; ++k) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      const std::byte* w = weights + static_cast<size_t>(g) * a.w->group_bytes;
      const __m256 w0 = LoadWeights8<F>(w, k, 0), w1 = LoadWeights8<F>(w, k, 1);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 value = _mm256_set1_ps(x[r * a.x_stride + k]);
        acc[r][g][0] = _mm256_fmadd_ps(w0, value, acc[r][g][0]);
        acc[r][g][1] = _mm256_fmadd_ps(w1, value, acc[r][g][1]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) {
      StoreGroup(a.y + (row + r) * a.y_stride, a.w->n_out, int64_t{group + g} * kRowGroup, acc[r][g], a.add);
    }
  }
}

template <WeightFormat F, int R, int G>
void FloatRows(const MatmulFloatArgs& a, int row) {
  int group = a.group_begin;
  for (; group + G <= a.group_end; group += G) FloatTile<F, R, G>(a, group, row);
  for (; group < a.group_end; ++group) FloatTile<F, R, 1>(a, group, row);
}

template <WeightFormat F>
void FloatGroups(const MatmulFloatArgs& a) {
  int row = 0;
  for (; row + 4 <= a.n_rows; row += 4) FloatRows<F, 4, 1>(a, row);
  switch (a.n_rows - row) {
    case 3:
      FloatRows<F, 3, 1>(a, row);
      break;
    case 2:
      FloatRows<F, 2, 2>(a, row);
      break;
    case 1:
      FloatRows<F, 1, 4>(a, row);
      break;
    default:
      break;
  }
}

}  // namespace

void MatmulQ8(const MatmulQ8Args& a) {
  WithQuantizedFormat(a.w->format, [&](auto format) { Q8Groups<decltype(format)::kValue>(a); });
}

void MatmulFloat(const MatmulFloatArgs& a) {
  WithFloatFormat(a.w->format, [&](auto format) { FloatGroups<decltype(format)::kValue>(a); });
}

void QuantizeQ8(const float* x, int n, Q8Block* out) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  for (int b = 0; b < n / kQuantBlock; ++b, x += kQuantBlock) {
    Q8Block& block = out[b];
    __m256 v[4];  // half 0 is v[0] and v[1]
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
    const __m256 m0 = _mm256_max_ps(_mm256_andnot_ps(sign, v[0]), _mm256_andnot_ps(sign, v[1]));
    const __m256 m1 = _mm256_max_ps(_mm256_andnot_ps(sign, v[2]), _mm256_andnot_ps(sign, v[3]));
    // From here on the lower 128 bits speak of half 0, the upper ones of half 1.
    __m256 largest =
        _mm256_max_ps(_mm256_permute2f128_ps(m0, m1, 0x20), _mm256_permute2f128_ps(m0, m1, 0x31));
    largest = _mm256_max_ps(largest, _mm256_permute_ps(largest, 0x4E));
    largest = _mm256_max_ps(largest, _mm256_permute_ps(largest, 0xB1));
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
    // d[0], d[1], sum[0], sum[1] lie together, and s with what is unused behind them.
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.d), _mm_unpacklo_epi64(_mm_castps_si128(ds), sums));
    const __m128 products = _mm_mul_ps(ds, _mm_cvtepi32_ps(sums));
    const __m128 s =
        _mm_fmadd_ss(_mm_movehdup_ps(ds), _mm_cvtepi32_ps(_mm_shuffle_epi32(sums, 0xB1)), products);
    _mm_storeu_ps(&block.s, _mm_insert_ps(s, s, 0x0E));
  }
}

}  // namespace longspec::kernels::avx2
