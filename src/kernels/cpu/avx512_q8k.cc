// SPDX-License-Identifier: Apache-2.0
//
// Products in arithmetic "q8k", AVX-512 with VNNI. One vector is a group's 16 output rows; a tile is R rows
// of x against some super-blocks of one group, which share each unpacked weight and pair of factors.
//
// A tile is bound by multiplications: one vector of them a cycle, be they 64 products with weights or 16 with
// factors, while all else has instructions to spare. Of a super-block 64 are products with weights. Sums of
// these are multiplied with their factors two at a time, as pairs of 16 bits, where they fit, which
// activations say (Q8KBlock::wide): so Q4_K and Q5_K get by with 15 others, and Q3_K and Q6_K with 18.
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/avx512_products.h"
#include "kernels/cpu/q8k_steps_avx2.h"
#include "kernels/cpu/super_spans.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

// What is multiplied with factors at once: the sums of products of two blocks, or of the halves of one.
template <WeightFormat F>
inline constexpr int kBlocksOfPair = kHasHalves<F> ? 1 : 2;
template <WeightFormat F>
inline constexpr int kPairs = kBlocks / kBlocksOfPair<F>;

// The lower halves of lanes of both as 16 pairs.
inline __m512i Both(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xAAAAAAAA, first, _mm512_slli_epi32(second, 16));
}

// D, M and their factors.
template <WeightFormat F>
class SuperScales {
 public:
  SuperScales(const std::byte* group, int64_t n_super) {
    const int64_t n_block = n_super * kBlocks;
    scales_ = group + static_cast<size_t>(n_block) * kBlockBytes<F>;
    minima_ = scales_ + n_super * kRowGroup * 2;
    factors_ = minima_ + (kHasMin<F> ? n_super * kRowGroup * 2 : 0);
    min_factors_ = factors_ + n_block * kRowGroup;
  }

  __m512 Scale(int64_t super) const { return LoadHalf16(scales_ + super * kRowGroup * 2); }
  __m512 Minimum(int64_t super) const { return LoadHalf16(minima_ + super * kRowGroup * 2); }
  // Factors of pair `i` of the group.
  __m512i Pair(int64_t i) const { return PairOf(factors_, i); }
  __m512i MinimaPair(int64_t i) const { return PairOf(min_factors_, i); }

 private:
  static __m512i PairOf(const std::byte* factors, int64_t i) {
    const auto* rows = reinterpret_cast<const __m128i*>(factors + 2 * i * kRowGroup);
    const __m512i first = Wide(_mm_loadu_si128(rows)), second = Wide(_mm_loadu_si128(rows + 1));
    return Both(first, second);
  }
  static __m512i Wide(__m128i bytes) {
    if constexpr (kHasMin<F>) return _mm512_cvtepu8_epi32(bytes);
    return _mm512_cvtepi8_epi32(bytes);
  }

  const std::byte *scales_, *minima_, *factors_, *min_factors_;
};

// A super-block of R rows, which are n_super blocks apart.
template <int R>
struct Rows {
  const Q8KBlock* x;
  int64_t n_super;
  const Q8KBlock& operator[](int r) const { return x[r * n_super]; }
};

// dot += the products of line J of a block's weights with a block of the rows, at `at` of a super-block.
template <WeightFormat F, int J, int R>
[[gnu::always_inline]] inline void AddLine(const std::byte* w, const Rows<R>& x, int at, __m512i (&dot)[R]) {
  const __m512i weights = Line<F, J>(w);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) dot[r] = _mm512_dpbusd_epi32(dot[r], weights, Broadcast32(x[r].q + at + 4 * J));
}

template <WeightFormat F, int R, int... J>
[[gnu::always_inline]] inline void AddLines(Lines<J...>, const std::byte* w, const Rows<R>& x, int at,
                                            __m512i (&dot)[R]) {
  (AddLine<F, J>(w, x, at, dot), ...);
}

template <int R>
[[gnu::always_inline]] inline void Clear(__m512i (&sums)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_si512();
}

// What a super-block of R rows has beside its q.
template <WeightFormat F, int R>
class RowSteps {
 public:
  explicit RowSteps(const Rows<R>& x) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x[r].steps));
      const __m128i pairs = kHasHalves<F> ? _mm_unpacklo_epi8(bytes, bytes) : bytes;
      if constexpr (kHasHalves<F>) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs_[r]), _mm256_cvtepu8_epi16(pairs));
      } else {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(pairs_[r]), _mm_cvtepu8_epi16(pairs));
      }
      if constexpr (!kHasMin<F>) SetStarts(x[r], pairs, starts_[r]);
    }
  }

  // Of the blocks of pair `i`, 16 bits each.
  __m512i Pair(int r, int i) const { return _mm512_set1_epi32(pairs_[r][i]); }
  // What dot d begins with.
  __m512i Start(int r, int d) const {
    if constexpr (kHasMin<F>) {
      return _mm512_setzero_si512();
    } else {
      return _mm512_set1_epi32(starts_[r][d]);
    }
  }

 private:
  static constexpr int kDots = 2 * kPairs<F>;

  // -offset times the sums of q. The block has steps times these sums: the quotients are integers, and what
  // is computed here is within a tenth of them.
  static void SetStarts(const Q8KBlock& x, __m128i steps, int32_t (&starts)[kDots]) {
    constexpr auto kOf = static_cast<float>(-kOffset<F>);
    alignas(64) static constexpr float kOfSteps[16] = {0.0F,    kOf / 1, kOf / 2, kOf / 3, kOf / 4,
                                                       kOf / 5, kOf / 6, kOf / 7, kOf / 8};
    const auto* sums = reinterpret_cast<const __m128i*>(kHasHalves<F> ? x.half_sums : x.block_sums);
    const __m512 factors = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(steps), _mm512_load_ps(kOfSteps));
    const __m256i words = kHasHalves<F> ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums))
                                        : _mm256_zextsi128_si256(_mm_loadu_si128(sums));
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(words));
    const __m512i all = _mm512_cvtps_epi32(_mm512_mul_ps(values, factors));
    if constexpr (kHasHalves<F>) {
      _mm512_storeu_si512(starts, all);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(starts), _mm512_castsi512_si256(all));
    }
  }

  int32_t pairs_[R][kPairs<F>];
  int32_t starts_[R][kHasMin<F> ? 1 : kDots];
};

// Which blocks have sums of products with any of R rows that might not fit 16 bits: a bit each.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline int WideBlocks(const Rows<R>& x) {
  if constexpr (kBits<F> == 3) {
    return 0;  // at most 16 * 4 * 127
  } else if constexpr (kHasCodes<F>) {
    return 255;
  } else {
    int wide = 0;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) wide |= x[r].wide[kBits<F> - 4];
    return wide;
  }
}

// dots += factors * steps * the sums `first` and `second` of pair `i`.
template <WeightFormat F, bool kWide, int R>
[[gnu::always_inline]] inline void AddScaled(__m512i factors, const RowSteps<F, R>& steps, int i,
                                             const __m512i (&first)[R], const __m512i (&second)[R],
                                             __m512i (&dots)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i products = _mm512_mullo_epi16(factors, steps.Pair(r, i));
    if constexpr (!kWide) {
      const __m512i both = Both(first[r], second[r]);
      dots[r] = _mm512_dpwssd_epi32(dots[r], products, both);
    } else {
      const __m512i of_second =
          kHasMin<F> ? _mm512_srli_epi32(products, 16) : _mm512_srai_epi32(products, 16);
      const __m512i of_first = kHasMin<F> ? _mm512_and_si512(products, _mm512_set1_epi32(0xFFFF))
                                          : _mm512_srai_epi32(_mm512_slli_epi32(products, 16), 16);
      dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(first[r], of_first));
      dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(second[r], of_second));
    }
  }
}

// dots += steps * factor * sum of products, of pair `i` of a super-block, whose weights begin at w. `wide`:
// of what WideBlocks says.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void AddPair(__m512i factors, const RowSteps<F, R>& steps, int i, bool wide,
                                           const std::byte* w, const Rows<R>& x, __m512i (&dots)[R]) {
  __m512i first[R], second[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    first[r] = steps.Start(r, 2 * i);
    second[r] = steps.Start(r, 2 * i + 1);
  }
  const int at = kBlocksOfPair<F> * kQuantBlock * i;
  if constexpr (kHasHalves<F>) {
    AddLines<F>(Lines<0, 1, 2, 3>(), w, x, at, first);
    AddLines<F>(Lines<4, 5, 6, 7>(), w, x, at, second);
  } else {
    constexpr Lines<0, 4, 1, 5, 2, 6, 3, 7> kLines;
    AddLines<F>(kLines, w, x, at, first);
    AddLines<F>(kLines, w + kBlockBytes<F>, x, at + kQuantBlock, second);
  }
  if (wide) {
    AddScaled<F, true>(factors, steps, i, first, second, dots);
  } else {
    AddScaled<F, false>(factors, steps, i, first, second, dots);
  }
}

// What a tile of R rows fetches at each pair of its span: `lines` of span.next, of which the tiles each fetch
// a part. One or two rows are one tile, and fetch the weights as they lie.
template <WeightFormat F, int R>
class PairsAhead {
 public:
  PairsAhead(const Span<SuperScales<F>>& span, int lines)
      : few_(span.quants, span.next, span.n_super * kBlocks), next_(span.next), lines_(lines) {}

  // At the next pair.
  [[gnu::always_inline]] void Fetch() {
    if constexpr (R <= 2) {
      if (lines_ == 0) return;
      for (int i = 0; i < kBlocksOfPair<F>; ++i) few_.Fetch(block_++);
    } else {
#pragma GCC unroll 1
      for (int line = 0; line < lines_; ++line, next_ += 64) FetchLine(next_);
    }
  }

 private:
  WeightsAhead<F> few_;
  const std::byte* next_;
  int lines_, block_ = 0;
};

// The integers of super-block `super` with R rows. Meanwhile `ahead` fetches.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void AddPairs(const SuperScales<F>& scales, int64_t super, const std::byte* w,
                                            const Rows<R>& x, PairsAhead<F, R>& ahead, __m512i (&dots)[R]) {
  const RowSteps<F, R> steps(x);
  const int wide = WideBlocks<F>(x);
  Clear(dots);
  for (int i = 0; i < kPairs<F>; ++i, w += kBlocksOfPair<F> * kBlockBytes<F>) {
    ahead.Fetch();
    const bool any = kHasCodes<F> || (wide >> kBlocksOfPair<F> * i & (kHasHalves<F> ? 1 : 3)) != 0;
    AddPair<F>(scales.Pair(super * kPairs<F> + i), steps, i, any, w, x, dots);
  }
}

// R rows against the span. Their sums are in memory: registers are for dots. `lines` of span.next are fetched
// at each pair.
template <WeightFormat F, int R>
[[gnu::noinline]] void Q8KTile(const Span<SuperScales<F>>& span, int row, int lines) {
  const SuperScales<F> scales = *span.scales;
  const std::byte* w = span.quants;
  PairsAhead<F, R> ahead(span, lines);
  float* acc = span.acc + row * kRowGroup;
  Rows<R> x = {span.Row(row), span.n_super};
  for (int64_t super = span.begin; super < span.end; ++super, ++x.x, w += kBlocks * kBlockBytes<F>) {
    __m512i dots[R], minima[R];
    AddPairs(scales, super, w, x, ahead, dots);
    if constexpr (kHasMin<F>) {
      Clear(minima);
      for (int i = 0; i < kBlocks / 2; ++i) {
        const __m512i factors = scales.MinimaPair(super * (kBlocks / 2) + i);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          minima[r] = _mm512_dpwssd_epi32(minima[r], factors, Broadcast32(x[r].block_sums + 2 * i));
      }
    }
    const __m512 d = scales.Scale(super);
    [[maybe_unused]] const __m512 m = kHasMin<F> ? scales.Minimum(super) : d;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      __m512 t = _mm512_mul_ps(d, _mm512_cvtepi32_ps(dots[r]));
      if constexpr (kHasMin<F>) t = _mm512_fnmadd_ps(m, _mm512_cvtepi32_ps(minima[r]), t);
      float* sum = acc + r * kRowGroup;
      _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_set1_ps(x[r].d), t, _mm512_loadu_ps(sum)));
    }
  }
}

struct Isa {
  template <WeightFormat F>
  using Scales = SuperScales<F>;
  static constexpr int kTileRows = kMostRows;
  // To take weights apart needs no multiplication.
  template <WeightFormat F>
  static constexpr int kManyRows = kNever;

  // Together the tiles fetch the next group, so that memory never idles.
  template <WeightFormat F, Quants Q>
  static void Tiles(Span<SuperScales<F>> span, int n_rows) {
    const int n_tiles = (n_rows + kMostRows - 1) / kMostRows;
    int left = span.next == nullptr ? 0 : kBlocksOfPair<F> * kBlockLines<F>;  // lines at a pair
    int lines = (left + n_tiles - 1) / n_tiles;
    ForEachTile<kMostRows>(n_rows, [&](auto rows, int row) {
      if (lines > left) lines = left;
      Q8KTile<F, decltype(rows)::kValue>(span, row, lines);
      span.next += (span.end - span.begin) * kPairs<F> * lines * 64;
      left -= lines;
    });
  }

  static void Store(const MatmulQ8KArgs& a, int group, int row, int n_rows, const float* acc) {
    for (int r = 0; r < n_rows; ++r, acc += kRowGroup)
      StoreGroup(a.y + (row + r) * a.y_stride, a.w->n_out, group, _mm512_loadu_ps(acc), a.add);
  }
};

}  // namespace

void MatmulQ8K(const MatmulQ8KArgs& a) { MultiplyGroups<Isa>(a); }

void QuantizeQ8K(const float* x, int n, Q8KBlock* out) {
  for (int b = 0; b < n / kSuperBlock; ++b, x += kSuperBlock) {
    Q8KBlock& block = out[b];
    float inverse[kBlocks];
    if (!SetSteps(x, block, inverse)) {
      block = kNoNumbersQ8K;
      continue;
    }
    for (int i = 0; i < kBlocks; ++i) {
      int32_t sums[2], magnitudes[2];
      for (int h = 0; h < 2; ++h) {
        const int at = kQuantBlock * i + 16 * h;
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + at), _mm512_set1_ps(inverse[i]));
        const __m512i q = _mm512_cvtps_epi32(scaled);  // rounds to nearest even
        _mm_storeu_si128(reinterpret_cast<__m128i*>(block.q + at), _mm512_cvtsepi32_epi8(q));
        sums[h] = SumOf(q);
        magnitudes[h] = SumOf(_mm512_abs_epi32(q));
      }
      SetBlockSums(i, sums, magnitudes, block);
    }
  }
}

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
