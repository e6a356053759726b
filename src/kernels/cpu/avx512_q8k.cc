// SPDX-License-Identifier: Apache-2.0
//
// Products in arithmetic "q8k", AVX-512 with VNNI. One vector is a group's 16 output rows; a tile is R rows
// of x against some super-blocks of one group, which share each unpacked weight and pair of factors.
//
// A tile is bound by multiplications: one vector of them a cycle, be they 64 products with weights or 16 with
// factors, while all else has instructions to spare. Of a super-block 64 are products with weights. So Q4_K
// and Q5_K get by with 19 others, and Q6_K with 27.
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/avx512_products.h"
#include "kernels/cpu/q8k_steps_avx2.h"
#include "kernels/cpu/super_spans.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

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
  // Of Q6_K, of a half of a block.
  __m512i Factor(int64_t half) const {
    return _mm512_cvtepi8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors_ + half * kRowGroup)));
  }
  // Of Q4_K and Q5_K, of blocks 2 i and 2 i + 1, 16 bits each.
  __m512i Pair(int64_t i) const { return PairOf(factors_, i); }
  __m512i MinimaPair(int64_t i) const { return PairOf(min_factors_, i); }

 private:
  static __m512i PairOf(const std::byte* factors, int64_t i) {
    const auto* blocks = reinterpret_cast<const __m128i*>(factors + 2 * i * kRowGroup);
    const __m512i first = _mm512_cvtepu8_epi32(_mm_loadu_si128(blocks));
    const __m512i second = _mm512_cvtepu8_epi32(_mm_loadu_si128(blocks + 1));
    return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
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

// dot += the products of line J of a block's weights with block i of the rows.
template <WeightFormat F, int J, int R>
[[gnu::always_inline]] inline void AddLine(const std::byte* w, const Rows<R>& x, int i, __m512i (&dot)[R]) {
  const __m512i weights = Line<F, J>(w);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    dot[r] = _mm512_dpbusd_epi32(dot[r], weights, Broadcast32(x[r].q + kQuantBlock * i + 4 * J));
  }
}

template <WeightFormat F, int R, int... J>
[[gnu::always_inline]] inline void AddLines(Lines<J...>, const std::byte* w, const Rows<R>& x, int i,
                                            __m512i (&dot)[R]) {
  (AddLine<F, J>(w, x, i, dot), ...);
}

template <int R>
[[gnu::always_inline]] inline void Clear(__m512i (&sums)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_si512();
}

// Adds up steps * factor * (the dot of a block or of its half) of R rows of a super-block.
//
// Of Q4_K and Q5_K two blocks at a time: one instruction multiplies the factors of both with steps, in 16
// bits.
template <WeightFormat F, int R>
class SuperDots {
 public:
  static constexpr int kBlocksAtOnce = 2;

  explicit SuperDots(const Rows<R>& x) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x[r].steps));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(steps_[r]), _mm_cvtepu8_epi16(bytes));
    }
  }

  // Of block `i` and the next, whose weights begin at w.
  [[gnu::always_inline]] void Add(const SuperScales<F>& scales, int64_t super, int i, const std::byte* w,
                                  const Rows<R>& x, __m512i (&dots)[R]) const {
    constexpr Lines<0, 4, 1, 5, 2, 6, 3, 7> kLines;
    const __m512i factors = scales.Pair((super * kBlocks + i) / 2);
    __m512i dot[R], products[R];
    Clear(dot);
    AddLines<F>(kLines, w, x, i, dot);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      products[r] = _mm512_mullo_epi16(factors, _mm512_set1_epi32(steps_[r][i / 2]));
      const __m512i first = _mm512_and_si512(products[r], _mm512_set1_epi32(0xFFFF));
      dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(dot[r], first));
    }
    Clear(dot);
    AddLines<F>(kLines, w + kBlockBytes<F>, x, i + 1, dot);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i second = _mm512_srli_epi32(products[r], 16);
      dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(dot[r], second));
    }
  }

 private:
  int32_t steps_[R][kBlocks / 2];  // of two blocks, 16 bits each
};

// Of Q6_K the dot of a half begins with what 32, which was added to its weights, makes it too large.
template <int R>
class SuperDots<WeightFormat::kSuperU6Halves, R> {
 public:
  static constexpr WeightFormat kFormat = WeightFormat::kSuperU6Halves;
  static constexpr int kBlocksAtOnce = 1;

  explicit SuperDots(const Rows<R>& x) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x[r].steps));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(steps_[r]), _mm256_cvtepu8_epi32(bytes));
      _mm512_storeu_si512(less_32_[r], Less32(x[r], bytes));
    }
  }

  [[gnu::always_inline]] void Add(const SuperScales<kFormat>& scales, int64_t super, int i,
                                  const std::byte* w, const Rows<R>& x, __m512i (&dots)[R]) const {
    const int64_t half = 2 * (super * kBlocks + i);
    const __m512i first = scales.Factor(half), second = scales.Factor(half + 1);
    __m512i dot[R], both[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dot[r] = _mm512_set1_epi32(less_32_[r][2 * i]);
    AddLines<kFormat>(Lines<0, 1, 2, 3>(), w, x, i, dot);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      both[r] = _mm512_mullo_epi32(dot[r], first);
      dot[r] = _mm512_set1_epi32(less_32_[r][2 * i + 1]);
    }
    AddLines<kFormat>(Lines<4, 5, 6, 7>(), w, x, i, dot);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      both[r] = _mm512_add_epi32(both[r], _mm512_mullo_epi32(dot[r], second));
      dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(both[r], _mm512_set1_epi32(steps_[r][i])));
    }
  }

 private:
  // -32 times the sums of the halves' q. The block has steps times these sums: the quotients are integers,
  // and what is computed here is within a hundredth of them.
  static __m512i Less32(const Q8KBlock& x, __m128i steps) {
    alignas(64) static constexpr float kOfSteps[16] = {
        0.0F, -32 / 1.0F, -32 / 2.0F, -32 / 3.0F, -32 / 4.0F, -32 / 5.0F, -32 / 6.0F, -32 / 7.0F, -32 / 8.0F};
    const __m512i of_halves = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(steps, steps));
    const __m512 factors = _mm512_permutexvar_ps(of_halves, _mm512_load_ps(kOfSteps));
    const __m512i sums =
        _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.half_sums)));
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), factors));
  }

  int32_t steps_[R][kBlocks], less_32_[R][2 * kBlocks];
};

// R rows against the span. Their sums are in memory: registers are for dots.
template <WeightFormat F, int R>
[[gnu::noinline]] void Q8KTile(const Span<SuperScales<F>>& span, int row) {
  const SuperScales<F> scales = *span.scales;
  const std::byte *w = span.quants, *next = span.next;
  float* acc = span.acc + row * kRowGroup;
  Rows<R> x = {span.Row(row), span.n_super};
  for (int64_t super = span.begin; super < span.end; ++super, ++x.x) {
    const SuperDots<F, R> super_dots(x);
    __m512i dots[R], minima[R];
    Clear(dots);
    constexpr int kAtOnce = SuperDots<F, R>::kBlocksAtOnce;
    for (int i = 0; i < kBlocks; i += kAtOnce, w += kAtOnce * kBlockBytes<F>) {
      if (next != nullptr) {
#pragma GCC unroll 16
        for (int line = 0; line < kAtOnce * kBlockLines<F>; ++line, next += 64) FetchLine(next);
      }
      super_dots.Add(scales, super, i, w, x, dots);
    }
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

  // The first tile fetches the next group, so that memory never idles.
  template <WeightFormat F, Quants Q>
  static void Tiles(Span<SuperScales<F>> span, int n_rows) {
    ForEachTile(n_rows, [&](auto rows, int row) {
      Q8KTile<F, decltype(rows)::kValue>(span, row);
      span.next = nullptr;
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
    for (int h = 0; h < 16; ++h) {
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * h), _mm512_set1_ps(inverse[h / 2]));
      const __m512i q = _mm512_cvtps_epi32(scaled);  // rounds to nearest even
      _mm_storeu_si128(reinterpret_cast<__m128i*>(block.q + 16 * h), _mm512_cvtsepi32_epi8(q));
      SetHalfSum(h, SumOf(q), block);
    }
  }
}

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
