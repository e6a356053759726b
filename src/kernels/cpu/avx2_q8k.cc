// SPDX-License-Identifier: Apache-2.0
//
// Products in arithmetic "q8k", AVX2. A tile is R rows of x against some super-blocks of one group of 16
// output rows, taken as two vectors of 8 lanes. Unsigned weights times signed bytes add up in 16 bits as long
// as they fit, and the multiplication with a block's factor widens the sums.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_products.h"
#include "kernels/cpu/q8k_steps_avx2.h"
#include "kernels/cpu/super_spans.h"

namespace longspec::kernels::avx2 {
namespace {

inline int Least(int a, int b) { return a < b ? a : b; }

// Whether line J of unpacked weights is read where it was packed: to mask it costs no more than to load it.
// Where tiles of more rows fill the registers, there is none for the mask.
template <WeightFormat F, int J>
inline constexpr bool kStaysPacked = kHasHalves<F>&& kLinePart<F, J, 0>.n == kBits<F>;

// A block's weights.
struct BlockOf {
  const std::byte *packed, *bytes;  // bytes: if they are unpacked
};

// Line J of them.
template <WeightFormat F, Quants Q, int J>
inline __m256i Weights(const BlockOf& w, int v) {
  if constexpr (Q == Quants::kBytes && !kStaysPacked<F, J>) {
    return LoadBytes(w.bytes + 64 * J + 32 * v);
  } else {
    return Line<F, J>(w.packed, v);
  }
}

// D, M and their factors, 8 lanes at a time.
template <WeightFormat F>
class SuperScales {
 public:
  SuperScales(const std::byte* group, int n_super) : quants_(group) {
    const auto n = static_cast<size_t>(n_super), n_block = n * kBlocks;
    scales_ = group + n_block * kBlockBytes<F>;
    minima_ = scales_ + n * kRowGroup * 2;
    factors_ = minima_ + (kHasMin<F> ? n * kRowGroup * 2 : 0);
    min_factors_ = factors_ + n_block * kRowGroup;
  }

  const std::byte* Quants(int super) const {
    return quants_ + static_cast<size_t>(super) * kBlocks * kBlockBytes<F>;
  }
  __m256 Scale(int super, int v) const { return LoadHalf8(scales_ + (super * kRowGroup + v * 8) * 2); }
  __m256 Minimum(int super, int v) const { return LoadHalf8(minima_ + (super * kRowGroup + v * 8) * 2); }

  // That of a block, or of a half of one, twice in each lane.
  __m256i Factor(int index, int v) const {
    const __m256i both = _mm256_broadcastsi128_si256(Sixteen(factors_, index));
    // Bytes 8 v + lane, four times each; every other one becomes zero: of signed factors the lower ones,
    // whose upper ones are shifted down.
    const __m256i lanes = _mm256_setr_epi32(0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x04040404,
                                            0x05050505, 0x06060606, 0x07070707);
    const __m256i at = _mm256_add_epi8(lanes, _mm256_set1_epi8(static_cast<char>(8 * v)));
    const __m256i zeros = _mm256_set1_epi16(static_cast<int16_t>(kHasMin<F> ? 0x8000 : 0x0080));
    const __m256i factor = _mm256_shuffle_epi8(both, _mm256_or_si256(at, zeros));
    return kHasMin<F> ? factor : _mm256_srai_epi16(factor, 8);
  }

  // Of minima of blocks 2 i and 2 i + 1, side by side in each lane; or of both halves of block i.
  __m256i Pair(int i, int v) const {
    const std::byte* factors = kHasMin<F> ? min_factors_ : factors_;
    const __m128i first = Sixteen(factors, 2 * i), second = Sixteen(factors, 2 * i + 1);
    const __m128i bytes = v == 0 ? _mm_unpacklo_epi8(first, second) : _mm_unpackhi_epi8(first, second);
    return kHasMin<F> ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes);
  }

 private:
  static __m128i Sixteen(const std::byte* factors, int index) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors + index * kRowGroup));
  }

  const std::byte *quants_, *scales_, *minima_, *factors_, *min_factors_;
};

inline __m256i Times(__m256i factors, const int32_t* steps) {
  return _mm256_mullo_epi16(factors, _mm256_set1_epi32(*steps));
}

// dot (+)= the products of lines J and K of a block's weights.
template <WeightFormat F, Quants Q, bool kFirst, int J, int K, int R>
[[gnu::always_inline]] inline void AddTwoLines(const BlockOf& w, int v, const int8_t* const (&q)[R],
                                               __m256i (&dot)[R]) {
  const __m256i first = Weights<F, Q, J>(w, v), second = Weights<F, Q, K>(w, v);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const __m256i pairs = _mm256_maddubs_epi16(first, Broadcast4(q[r] + 4 * J));
    dot[r] = kFirst ? pairs : _mm256_add_epi16(dot[r], pairs);
    dot[r] = _mm256_add_epi16(dot[r], _mm256_maddubs_epi16(second, Broadcast4(q[r] + 4 * K)));
    KeepInRegister(dot[r]);
  }
}

// dot (+)= the products of these lines, which together fit 16 bits.
template <WeightFormat F, Quants Q, bool kFirst, int R, int J, int K, int... Others>
[[gnu::always_inline]] inline void AddLines(Lines<J, K, Others...>, const BlockOf& w, int v,
                                            const int8_t* const (&q)[R], __m256i (&dot)[R]) {
  AddTwoLines<F, Q, kFirst, J, K>(w, v, q, dot);
  if constexpr (sizeof...(Others) > 0) AddLines<F, Q, false>(Lines<Others...>(), w, v, q, dot);
}

// sums += steps * factor * dots of block `b` with 32 values of each row, of weights as they were packed. A
// lane's products of nibbles and an int8 are at most 16 * 15 * 127 = 30480, those of half as many weights of
// five bits 8 * 31 * 127 = 31496.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void AddPacked(const SuperScales<F>& scales, int b, const BlockOf& w,
                                             const int8_t* const (&q)[R], const int32_t* const (&steps)[R],
                                             __m256i* sums) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const auto add = [&](auto lines) __attribute__((always_inline)) {
      __m256i dot[R];
      AddLines<F, Quants::kPacked, true>(lines, w, v, q, dot);
      const __m256i factor = scales.Factor(b, v);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        __m256i& sum = sums[r * kVectors + v];
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(dot[r], Times(factor, steps[r])));
      }
    };
    if constexpr (kIsU4<F>) {
      add(Lines<0, 4, 1, 5, 2, 6, 3, 7>());
    } else {
      add(Lines<0, 1, 2, 3>());
      add(Lines<4, 5, 6, 7>());
    }
  }
}

// Fours of values whose products fit 16 bits: at most 8 * 2 * 15 * 127 = 30480, or 4 * 2 * 31 * 127 = 31496.
template <WeightFormat F>
inline constexpr int kFours = kIsU4<F> ? 8 : 4;

// The same of unpacked weights.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void AddBytes(const SuperScales<F>& scales, int b, const std::byte* w,
                                            const int8_t* const (&q)[R], const int32_t* const (&steps)[R],
                                            __m256i* sums) {
#pragma GCC unroll 4
  for (int part = 0; part < 8 / kFours<F>; ++part) {
    __m256i dot[R][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kFours<F>; ++i) {
      const int j = part * kFours<F> + i;
      const __m256i w0 = LoadBytes(w + 64 * j), w1 = LoadBytes(w + 64 * j + 32);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256i x = Broadcast4(q[r] + 4 * j);
        const __m256i pairs0 = _mm256_maddubs_epi16(w0, x), pairs1 = _mm256_maddubs_epi16(w1, x);
        dot[r][0] = i == 0 ? pairs0 : _mm256_add_epi16(dot[r][0], pairs0);
        dot[r][1] = i == 0 ? pairs1 : _mm256_add_epi16(dot[r][1], pairs1);
        KeepInRegister(dot[r][0]);
        KeepInRegister(dot[r][1]);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m256i factor = scales.Factor(b, v);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        __m256i& sum = sums[r * kVectors + v];
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(dot[r][v], Times(factor, steps[r])));
      }
    }
  }
}

// The same where halves have factors of their own, of weights that are still 4 or 32 too large: vector by
// vector, so that products with factors add up in registers before they are multiplied with the steps. Those
// of two lines fit 16 bits: at most 2 * 2 * 63 * 127 = 32004.
template <WeightFormat F, Quants Q, int R>
[[gnu::always_inline]] inline void AddHalves(const SuperScales<F>& scales, int b, const BlockOf& w,
                                             const int8_t* const (&q)[R], const int32_t* const (&steps)[R],
                                             __m256i* sums) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    __m256i total[R];
    const auto add = [&]<bool kFirst>(auto lines, __m256i factor) __attribute__((always_inline)) {
      __m256i dot[R];
      AddLines<F, Q, true>(lines, w, v, q, dot);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i products = _mm256_madd_epi16(dot[r], factor);
        total[r] = kFirst ? products : _mm256_add_epi32(total[r], products);
        KeepInRegister(total[r]);
      }
    };
    const __m256i first = scales.Factor(2 * b, v);
    add.template operator()<true>(Lines<0, 1>(), first);
    add.template operator()<false>(Lines<2, 3>(), first);
    const __m256i second = scales.Factor(2 * b + 1, v);
    add.template operator()<false>(Lines<4, 5>(), second);
    add.template operator()<false>(Lines<6, 7>(), second);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      __m256i& sum = sums[r * kVectors + v];
      sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(total[r], _mm256_set1_epi32(*steps[r])));
    }
  }
}

// total (+)= factor * the products of line J of weights of 8 bits. |w| * (x with w's sign) keeps a pair of
// products within 2 * 127 * 127 = 32258.
template <WeightFormat F, Quants Q, int J, int R>
[[gnu::always_inline]] inline void AddWideLine(const BlockOf& w, int v, const int8_t* const (&q)[R],
                                               __m256i factor, __m256i (&total)[R]) {
  const __m256i weights = Less128(Weights<F, Q, J>(w, v));
  const __m256i magnitude = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const __m256i signed_x = _mm256_sign_epi8(Broadcast4(q[r] + 4 * J), weights);
    const __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), factor);
    total[r] = J == 0 ? products : _mm256_add_epi32(total[r], products);
    KeepInRegister(total[r]);
  }
}

// The same of weights of 8 bits.
template <WeightFormat F, Quants Q, int R, int... J>
[[gnu::always_inline]] inline void AddWide(Lines<J...>, const SuperScales<F>& scales, int b, const BlockOf& w,
                                           const int8_t* const (&q)[R], const int32_t* const (&steps)[R],
                                           __m256i* sums) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    __m256i total[R];
    const __m256i factor = scales.Factor(b, v);
    (AddWideLine<F, Q, J>(w, v, q, factor, total), ...);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      __m256i& sum = sums[r * kVectors + v];
      sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(total[r], _mm256_set1_epi32(*steps[r])));
    }
  }
}

// As they are multiplied: with factors in 16 bits, twice in each lane, or with sums in 32.
template <WeightFormat F>
[[gnu::always_inline]] inline void SpreadSteps(const Q8KBlock& x, int32_t (&steps)[kBlocks]) {
  __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x.steps)));
  if constexpr (kHasMin<F>) wide = _mm256_or_si256(wide, _mm256_slli_epi32(wide, 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(steps), wide);
}

// What a tile fetches at block `i` of super-block `super`.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void FetchPart(const Span<SuperScales<F>>& span, int super, int i) {
  if (span.next == nullptr) return;
  FirstTileAhead<F, R>(span.quants, span.next, span.n_super * kBlocks)
      .Fetch((super - span.begin) * kBlocks + i);
}

// The sum over N pairs of factors and of integers of x. `pairs`: the integers, 16 bits each.
template <int N>
[[gnu::always_inline]] inline __m256i PairDots(const __m256i (&factors)[N], const int16_t* pairs) {
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    int32_t two;
    std::memcpy(&two, pairs + 2 * i, sizeof(two));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(factors[i], _mm256_set1_epi32(two)));
  }
  return sum;
}

// acc = fma(d, D * float(dots) - M * float(minima), acc), of one super-block.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline void AddSuperBlock(const SuperScales<F>& scales, int super,
                                                 const Q8KBlock* const (&x)[R], const __m256i* sums,
                                                 __m256* acc) {
  constexpr int kPairs = kHasHalves<F> ? 8 : 4;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    [[maybe_unused]] __m256i factors[kPairs];
    if constexpr (kHasMin<F> || kHasHalves<F>) {
#pragma GCC unroll 8
      for (int i = 0; i < kPairs; ++i) factors[i] = scales.Pair(super * kPairs + i, v);
    }
    const __m256 d = scales.Scale(super, v);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      __m256i dots = sums[r * kVectors + v];
      __m256 t;
      if constexpr (kHasMin<F>) {
        const __m256i minima = PairDots(factors, x[r]->block_sums);
        t = _mm256_fnmadd_ps(scales.Minimum(super, v), _mm256_cvtepi32_ps(minima),
                             _mm256_mul_ps(d, _mm256_cvtepi32_ps(dots)));
      } else {
        if constexpr (kHasHalves<F>) {
          const __m256i sums_of_halves = PairDots(factors, x[r]->half_sums);
          dots = _mm256_sub_epi32(dots, _mm256_slli_epi32(sums_of_halves, kOffset<F> == 32 ? 5 : 2));
        }
        t = _mm256_mul_ps(d, _mm256_cvtepi32_ps(dots));
      }
      __m256& sum = acc[r * kVectors + v];
      sum = _mm256_fmadd_ps(_mm256_set1_ps(x[r]->d), t, sum);
    }
  }
}

template <WeightFormat F, Quants Q, int R>
[[gnu::noinline]] void Tile(const Span<SuperScales<F>>& span, int row) {
  const SuperScales<F> scales = *span.scales;
  BlockOf w = {.packed = scales.Quants(span.begin), .bytes = span.quants};
  const Q8KBlock* x[R];
  for (int r = 0; r < R; ++r) x[r] = span.Row(row + r);
  auto* acc = reinterpret_cast<__m256*>(span.acc) + row * kVectors;
  for (int super = span.begin; super < span.end; ++super) {
    // With more than two rows the sums of 16-bit products take the registers, and these are in memory on
    // purpose: a compiler that is left to spill them moves each several times.
    __m256i lanes[R * kVectors];
    __m256i* sums = lanes;
    if constexpr (R > 2) Forget(sums);
#pragma GCC unroll 12
    for (int i = 0; i < R * kVectors; ++i) sums[i] = _mm256_setzero_si256();
    int32_t steps[R][kBlocks];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) SpreadSteps<F>(*x[r], steps[r]);
    for (int i = 0; i < kBlocks; ++i, w.packed += kBlockBytes<F>, w.bytes += kQuantBytes<F, Q>) {
      const int b = super * kBlocks + i;
      FetchPart<F, R>(span, super, i);
      const int8_t* q[R];
      const int32_t* of_block[R];
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        q[r] = x[r]->q + kQuantBlock * i;
        of_block[r] = steps[r] + i;
      }
      if constexpr (kHasHalves<F>) {
        AddHalves<F, Q, R>(scales, b, w, q, of_block, sums);
      } else if constexpr (kHasCodes<F>) {
        AddWide<F, Q>(Lines<0, 1, 2, 3, 4, 5, 6, 7>(), scales, b, w, q, of_block, sums);
      } else if constexpr (Q == Quants::kPacked) {
        AddPacked<F, R>(scales, b, w, q, of_block, sums);
      } else {
        AddBytes<F, R>(scales, b, w.bytes, q, of_block, sums);
      }
      if constexpr (R > 2) Forget(sums);
    }
    AddSuperBlock<F, R>(scales, super, x, sums, acc);
    for (int r = 0; r < R; ++r) ++x[r];
  }
}

// The most rows of a tile. Six pay where nothing but products and their sums is left to do.
template <WeightFormat F, Quants Q>
inline constexpr int kMostRows = Q == Quants::kBytes&& kHasMin<F> ? 6 : 4;

// How many of `left` rows a tile takes: the most, but 7 rows are 4 and 3, 8 are 4 and 4, 5 are 3 and 2.
template <int Most>
inline int TileOf(int left) {
  if (Most == 6 && (left == 6 || left > 8)) return 6;
  return left == 5 ? 3 : Least(left, 4);
}

template <WeightFormat F, int J>
[[gnu::always_inline]] inline void UnpackLine(const std::byte* packed, int v, std::byte* bytes) {
  if constexpr (!kStaysPacked<F, J>)
    _mm256_store_si256(reinterpret_cast<__m256i*>(bytes + 64 * J + 32 * v), Line<F, J>(packed, v));
}

// The lines of a block to bytes.
template <WeightFormat F, int... J>
[[gnu::always_inline]] inline void UnpackLines(Lines<J...>, const std::byte* packed, std::byte* bytes) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    (UnpackLine<F, J>(packed, v, bytes), ...);
  }
}

struct Isa {
  template <WeightFormat F>
  using Scales = SuperScales<F>;
  static constexpr int kTileRows = 4;
  template <WeightFormat F>
  static constexpr int kManyRows = kIsU4<F> ? 6 : 5;

  template <WeightFormat F>
  static void Unpack(const std::byte* packed, int n_block, std::byte* bytes) {
    for (int b = 0; b < n_block; ++b, packed += kBlockBytes<F>, bytes += kByteBlock)
      UnpackLines<F>(Lines<0, 4, 1, 5, 2, 6, 3, 7>(), packed, bytes);
  }

  template <WeightFormat F, Quants Q>
  static void Tiles(Span<SuperScales<F>> span, int n_rows) {
    for (int row = 0; row < n_rows; span.next = nullptr) {
      const int rows = TileOf<kMostRows<F, Q>>(n_rows - row);
      switch (rows) {
        case 1:
          Tile<F, Q, 1>(span, row);
          break;
        case 2:
          Tile<F, Q, 2>(span, row);
          break;
        case 3:
          Tile<F, Q, 3>(span, row);
          break;
        case 4:
          Tile<F, Q, 4>(span, row);
          break;
        default:
          if constexpr (kMostRows<F, Q> == 6) Tile<F, Q, 6>(span, row);
          break;
      }
      row += rows;
    }
  }

  static void Store(const MatmulQ8KArgs& a, int group, int row, int n_rows, const float* acc) {
    const int64_t first = int64_t{group} * kRowGroup, left = a.w->n_out - first;
    float* y = a.y + row * a.y_stride + first;
    if (left < kRowGroup) return StoreFewLanes(acc, n_rows, left, y, a.y_stride, a.add);
    for (int r = 0; r < n_rows; ++r, y += a.y_stride, acc += kRowGroup) {
      StoreVector(y, _mm256_load_ps(acc), a.add);
      StoreVector(y + 8, _mm256_load_ps(acc + 8), a.add);
    }
  }
};

}  // namespace

void MatmulQ8K(const MatmulQ8KArgs& a) { MultiplyGroups<Isa>(a); }

void QuantizeQ8K(const float* x, int n, Q8KBlock* out) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int b = 0; b < n / kSuperBlock; ++b, x += kSuperBlock) {
    Q8KBlock& block = out[b];
    float inverse[kBlocks];
    if (!SetSteps(x, block, inverse)) {
      block = kNoNumbersQ8K;
      continue;
    }
    for (int i = 0; i < kBlocks; ++i) {
      __m256i q[4];
      for (int v = 0; v < 4; ++v) {
        const __m256 values = _mm256_loadu_ps(x + kQuantBlock * i + 8 * v);
        q[v] = _mm256_cvtps_epi32(_mm256_mul_ps(values, _mm256_set1_ps(inverse[i])));
      }
      // packs works within 128 bits: the permutation undoes its interleaving.
      const __m256i w0 = _mm256_packs_epi32(q[0], q[1]), w1 = _mm256_packs_epi32(q[2], q[3]);
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(block.q + kQuantBlock * i),
          _mm256_permutevar8x32_epi32(_mm256_packs_epi16(w0, w1), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
      const __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(w0, ones), _mm256_madd_epi16(w1, ones));
      const __m256i magnitudes = _mm256_hadd_epi32(_mm256_madd_epi16(_mm256_abs_epi16(w0), ones),
                                                   _mm256_madd_epi16(_mm256_abs_epi16(w1), ones));
      const __m256i fours = _mm256_hadd_epi32(pairs, magnitudes);
      const __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
      alignas(16) int32_t four[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(four), sums);
      SetBlockSums(i, {four[0], four[1]}, {four[2], four[3]}, block);
    }
  }
}

}  // namespace longspec::kernels::avx2
