// SPDX-License-Identifier: Apache-2.0
//
// Products in arithmetic "q8k", AVX-512 with VNNI. One vector is a group's 16 output rows; a tile is R rows
// of x against some super-blocks of one group, which share each unpacked weight, factor and pair of factors.
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
  // Of a block, or of a half of one.
  __m512i Factor(int64_t index) const { return Wide(factors_ + index * kRowGroup); }
  // Of minima of blocks 2 i and 2 i + 1, 16 bits each; of Q6_K, of both halves of block i.
  __m512i Pair(int64_t i) const {
    const std::byte* first = (kHasMin<F> ? min_factors_ : factors_) + 2 * i * kRowGroup;
    const __m512i low = _mm512_and_si512(Wide(first), _mm512_set1_epi32(0xFFFF));
    return _mm512_or_si512(low, _mm512_slli_epi32(Wide(first + kRowGroup), 16));
  }

 private:
  static __m512i Wide(const std::byte* factors) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors));
    if constexpr (kHasMin<F>) return _mm512_cvtepu8_epi32(bytes);
    return _mm512_cvtepi8_epi32(bytes);
  }

  const std::byte *scales_, *minima_, *factors_, *min_factors_;
};

// Factors, of few bits and signed, times the steps of a row's block. The upper 16 bits of a lane are the
// sign's.
inline __m512i TimesSteps(__m512i factors, int32_t steps) {
  return _mm512_mullo_epi16(factors, _mm512_set1_epi32(steps | (1 << 16)));
}

// Line J of a block's weights.
template <WeightFormat F, Quants Q, int J>
inline __m512i Weights(const std::byte* w) {
  if constexpr (Q == Quants::kBytes) return _mm512_loadu_si512(w + 64 * J);
  return Line<F, J>(w);
}

// dot += the products of line J with rows q_stride apart.
template <WeightFormat F, Quants Q, int J, int R>
[[gnu::always_inline]] inline void AddLine(const std::byte* w, const int8_t* q, int64_t q_stride,
                                           __m512i (&dot)[R][2]) {
  const __m512i weights = Weights<F, Q, J>(w);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i x = Broadcast32(q + r * q_stride + 4 * J);
    dot[r][J / 4] = _mm512_dpbusd_epi32(dot[r][J / 4], weights, x);
  }
}

// The integer dots of one group's block with both halves of 32 values of R rows. Those of *Halves are still
// 32 times the sum of the values too large.
template <WeightFormat F, Quants Q, int R, int... J>
[[gnu::always_inline]] inline void SuperBlockDots(Lines<J...>, const std::byte* w, const int8_t* q,
                                                  int64_t q_stride, __m512i (&dot)[R][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) dot[r][0] = dot[r][1] = _mm512_setzero_si512();
  (AddLine<F, Q, J>(w, q, q_stride, dot), ...);
}

// R rows against the span.
template <WeightFormat F, Quants Q, int R>
[[gnu::noinline]] void Q8KTile(const Span<SuperScales<F>>& span, int row) {
  const SuperScales<F> scales = *span.scales;
  const int64_t n_super = span.n_super;
  const std::byte *w = span.quants, *next = span.next;
  const Q8KBlock* x = span.Row(row);
  const auto q_stride = static_cast<int64_t>(static_cast<size_t>(n_super) * sizeof(Q8KBlock));
  __m512 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = _mm512_loadu_ps(span.acc + (row + r) * kRowGroup);
  for (int64_t super = span.begin; super < span.end; ++super, ++x) {
    __m512i dots[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dots[r] = _mm512_setzero_si512();
    for (int i = 0; i < kBlocks; ++i, w += kQuantBytes<F, Q>) {
      if (next != nullptr) {
#pragma GCC unroll 16
        for (int line = 0; line < kBlockLines<F>; ++line, next += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
        }
      }
      __m512i dot[R][2];
      SuperBlockDots<F, Q, R>(Lines<0, 4, 1, 5, 2, 6, 3, 7>(), w, x->q + kQuantBlock * i, q_stride, dot);
      const int64_t b = super * kBlocks + i;
      const __m512i first = scales.Factor(kHasMin<F> ? b : 2 * b);
      [[maybe_unused]] const __m512i second = kHasMin<F> ? first : scales.Factor(2 * b + 1);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t steps = x[r * n_super].steps[i];
        if constexpr (kIsU4<F>) {
          // The dot of a half, at most 16 * 15 * 127 = 30480, is the lower 16 bits of its lane, and the upper
          // ones of a factor are zeros.
          const __m512i factor = TimesSteps(first, steps);
          dots[r] = _mm512_dpwssd_epi32(dots[r], dot[r][0], factor);
          dots[r] = _mm512_dpwssd_epi32(dots[r], dot[r][1], factor);
        } else if constexpr (kHasMin<F>) {
          const __m512i both = _mm512_add_epi32(dot[r][0], dot[r][1]);
          dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(both, TimesSteps(first, steps)));
        } else {
          dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(dot[r][0], TimesSteps(first, steps)));
          dots[r] = _mm512_add_epi32(dots[r], _mm512_mullo_epi32(dot[r][1], TimesSteps(second, steps)));
        }
      }
    }
    // What sums of x are multiplied with: minima, or what was added to the weights.
    constexpr int kPairs = kHasMin<F> ? 4 : 8;
    __m512i sums[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_si512();
    for (int i = 0; i < kPairs; ++i) {
      const __m512i pair = scales.Pair(super * kPairs + i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Q8KBlock& block = x[r * n_super];
        const int16_t* of_x = kHasMin<F> ? block.block_sums : block.half_sums;
        sums[r] = _mm512_dpwssd_epi32(sums[r], pair, Broadcast32(of_x + 2 * i));
      }
    }
    const __m512 d = scales.Scale(super);
    [[maybe_unused]] const __m512 m = kHasMin<F> ? scales.Minimum(super) : d;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if constexpr (!kHasMin<F>) dots[r] = _mm512_sub_epi32(dots[r], _mm512_slli_epi32(sums[r], 5));
      __m512 t = _mm512_mul_ps(d, _mm512_cvtepi32_ps(dots[r]));
      if constexpr (kHasMin<F>) t = _mm512_fnmadd_ps(m, _mm512_cvtepi32_ps(sums[r]), t);
      acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(x[r * n_super].d), t, acc[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(span.acc + (row + r) * kRowGroup, acc[r]);
}

// The lines of a block to bytes.
template <WeightFormat F, int... J>
[[gnu::always_inline]] inline void UnpackLines(Lines<J...>, const std::byte* packed, std::byte* bytes) {
  (_mm512_storeu_si512(bytes + 64 * J, (Line<F, J>(packed))), ...);
}

struct Isa {
  template <WeightFormat F>
  using Scales = SuperScales<F>;
  static constexpr int kTileRows = kMostRows;
  // Two nibbles are taken apart as fast as they are read; weights of several lines are not.
  template <WeightFormat F>
  static constexpr int kManyRows = kIsU4<F> ? kRowBlock + 1 : 2 * kMostRows + 1;

  template <WeightFormat F>
  static void Unpack(const std::byte* packed, int n_block, std::byte* bytes) {
    for (int b = 0; b < n_block; ++b, packed += kBlockBytes<F>, bytes += kByteBlock)
      UnpackLines<F>(Lines<0, 1, 2, 3, 4, 5, 6, 7>(), packed, bytes);
  }

  // The first tile fetches the next group, so that memory never idles.
  template <WeightFormat F, Quants Q>
  static void Tiles(Span<SuperScales<F>> span, int n_rows) {
    ForEachTile(n_rows, [&](auto rows, int row) {
      Q8KTile<F, Q, decltype(rows)::kValue>(span, row);
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
