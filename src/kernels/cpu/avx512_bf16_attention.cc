// SPDX-License-Identifier: Apache-2.0
//
// Attention over bf16 keys and values with AVX-512 BF16: VDPBF16PS adds two products in each of 16 lanes,
// which is what arithmetic "bf16" (ops.h) is made of. Pairs of dimensions of 16 keys, and pairs of keys of 16
// dimensions, are put together as they are loaded; a tile of rows shares that work.
#include <immintrin.h>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/avx512_bf16_math.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/value_rows.h"

namespace longspec::kernels::avx512_bf16 {
namespace {

constexpr int kPairsOfChunk = kChunk / 2;

// ---- Scores
// -------------------------------------------------------------------------------------------------------------

// R query rows, as pairs, against B neighbouring blocks of 16 keys. q: (R, kMaxHeadDim / 2).
template <int R, int B>
[[gnu::always_inline]] inline void ScoreTile(const ScoresArgs& a, const uint32_t* q, int row, int block,
                                             Fetch& fetch) {
  const size_t block_bytes = static_cast<size_t>(a.head_dim) * kKeyGroup * kBf16Bytes;
  const std::byte* keys = a.keys + static_cast<size_t>(block) * block_bytes;
  __m512 acc[R][B];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) acc[r][b] = _mm512_setzero_ps();
  }
  for (int begin = 0; begin < a.head_dim / 2; begin += kStride<R> / 2) {
    fetch.Step(R * B * kStride<R>);
    for (int i = begin; i < begin + kStride<R> / 2; ++i, keys += 2 * kKeyGroup * kBf16Bytes) {
      __m512i k[B];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) k[b] = InPairs(Load32(keys + static_cast<size_t>(b) * block_bytes));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512i pair = _mm512_set1_epi32(static_cast<int>(q[r * (kMaxHeadDim / 2) + i]));
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) acc[r][b] = AddPairs(acc[r][b], pair, k[b]);
      }
    }
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* out = a.out + (row + r) * a.out_stride + int64_t{block} * kKeyGroup;
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) _mm512_storeu_ps(out + 16 * b, _mm512_mul_ps(acc[r][b], scale));
  }
}

template <int R>
[[gnu::noinline]] void ScoreRows(const ScoresArgs& a, int row, Fetch& fetch) {
  alignas(64) uint32_t q[R * (kMaxHeadDim / 2)];
  for (int r = 0; r < R; ++r) {
    RoundRow(a.q + int64_t{row + r} * a.head_dim, a.head_dim, q + r * (kMaxHeadDim / 2));
  }
  constexpr int kBlocks = R <= 6 ? 4 : 2;  // 24 accumulators of 32 registers at most
  int block = a.block_begin;
  for (; block + kBlocks <= a.block_end; block += kBlocks) ScoreTile<R, kBlocks>(a, q, row, block, fetch);
  for (; block < a.block_end; ++block) ScoreTile<R, 1>(a, q, row, block, fetch);
}

// ---- Values
// -------------------------------------------------------------------------------------------------------------

// The weights, as pairs, and the outputs of a tile's first row. p: (rows, kPairsOfChunk).
struct ValueRows {
  const uint32_t* p;
  float* o;
  int64_t o_stride;
};

// 32 dimensions of two keys as pairs. Unpacking within quarters of a register leaves dimensions 0 to 3, 8 to
// 11, 16 to 19 and 24 to 27 in the first vector and the others in the second: sums are kept in that order.
struct PairsOf32 {
  static constexpr int kVectors = 2, kDims = 32;

  static void Load(const std::byte* even, const std::byte* odd, __m512i* out) {
    const __m512i first = Load32(even), second = odd == nullptr ? _mm512_setzero_si512() : Load32(odd);
    out[0] = _mm512_unpacklo_epi16(first, second);
    out[1] = _mm512_unpackhi_epi16(first, second);
  }
  static void LoadSums(const float* o, __m512* sums) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const __m512i high = _mm512_setr_epi32(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    Reorder(_mm512_loadu_ps(o), _mm512_loadu_ps(o + 16), low, high, sums);
  }
  static void StoreSums(const __m512* sums, float* o) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    __m512 in_order[2];
    Reorder(sums[0], sums[1], low, high, in_order);
    _mm512_storeu_ps(o, in_order[0]);
    _mm512_storeu_ps(o + 16, in_order[1]);
  }

 private:
  static void Reorder(__m512 a, __m512 b, __m512i low, __m512i high, __m512* out) {
    out[0] = _mm512_permutex2var_ps(a, low, b);
    out[1] = _mm512_permutex2var_ps(a, high, b);
  }
};

// 16 dimensions, where head_dim is no multiple of 32.
struct PairsOf16 {
  static constexpr int kVectors = 1, kDims = 16;

  static void Load(const std::byte* even, const std::byte* odd, __m512i* out) {
    const __m512i first = _mm512_castsi256_si512(Load16Bits(even));
    const __m256i second = odd == nullptr ? _mm256_setzero_si256() : Load16Bits(odd);
    out[0] = InPairs(_mm512_inserti64x4(first, second, 1));
  }
  static void LoadSums(const float* o, __m512* sums) { sums[0] = _mm512_loadu_ps(o); }
  static void StoreSums(const __m512* sums, float* o) { _mm512_storeu_ps(o, sums[0]); }
};

// One pair of keys for R rows: N times Pairs::kDims of their values, from dimension d on. odd may be null:
// zeros.
template <typename Pairs, int R, int N>
[[gnu::always_inline]] inline void AddPair(const std::byte* even, const std::byte* odd, const ValueRows& rows,
                                           int pair, int d, __m512 (&acc)[R][N * Pairs::kVectors]) {
  constexpr int kVectors = N * Pairs::kVectors;
  __m512i value[kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    const size_t at = static_cast<size_t>(d + n * Pairs::kDims) * kBf16Bytes;
    Pairs::Load(even + at, odd == nullptr ? nullptr : odd + at, value + n * Pairs::kVectors);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i weights = _mm512_set1_epi32(static_cast<int>(rows.p[r * kPairsOfChunk + pair]));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[r][v] = AddPairs(acc[r][v], weights, value[v]);
  }
}

// R rows times N Pairs::kDims head dimensions from d on, over keys [begin, end), begin even.
template <typename Pairs, int R, int N, typename ValueRow>
[[gnu::always_inline]] inline void ValueTile(const ValueRow& value_row, const ValueRows& rows, int begin,
                                             int end, int d, Fetch& fetch) {
  constexpr int kVectors = N * Pairs::kVectors, kDims = N * Pairs::kDims;
  __m512 acc[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      Pairs::LoadSums(rows.o + r * rows.o_stride + d + n * Pairs::kDims, acc[r] + n * Pairs::kVectors);
    }
  }
  const int whole = end & ~1;
  for (int key = begin; key < whole;) {
    const int stop = whole - key < kStride<R> ? whole : key + kStride<R>;
    fetch.Step(R * kDims * (stop - key) / 16);
    for (; key < stop; key += 2) {
      AddPair<Pairs, R, N>(value_row(key), value_row(key + 1), rows, key / 2, d, acc);
    }
  }
  if (whole < end) AddPair<Pairs, R, N>(value_row(whole), nullptr, rows, whole / 2, d, acc);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      Pairs::StoreSums(acc[r] + n * Pairs::kVectors, rows.o + r * rows.o_stride + d + n * Pairs::kDims);
    }
  }
}

// All head dimensions, a multiple of 16.
template <int R, typename ValueRow>
[[gnu::noinline]] void ValueDims(const ValueRow& value_row, const ValueRows& rows, int head_dim, int begin,
                                 int end, Fetch& fetch) {
  int d = 0;
  if constexpr (R == 1) {
    for (; d + 128 <= head_dim; d += 128) ValueTile<PairsOf32, R, 4>(value_row, rows, begin, end, d, fetch);
  }
  if constexpr (R <= 6) {
    for (; d + 64 <= head_dim; d += 64) ValueTile<PairsOf32, R, 2>(value_row, rows, begin, end, d, fetch);
  }
  for (; d + 32 <= head_dim; d += 32) ValueTile<PairsOf32, R, 1>(value_row, rows, begin, end, d, fetch);
  if (d < head_dim) ValueTile<PairsOf16, R, 1>(value_row, rows, begin, end, d, fetch);
}

template <int R>
void ChunkValueTile(const ValuesArgs& a, int row, Fetch& fetch) {
  const ChunkRows value_row = {a.values, static_cast<size_t>(a.head_dim) * kBf16Bytes};
  alignas(64) uint32_t p[R * kPairsOfChunk];
  int shared = kChunk;
  for (int r = 0; r < R; ++r) {
    const int n_keys = a.n_keys[row + r];
    shared = n_keys < shared ? n_keys : shared;
    RoundRow(a.p + (row + r) * a.p_stride, n_keys, p + r * kPairsOfChunk);
  }
  shared &= ~1;
  ValueRows rows = {p, a.o + row * a.o_stride, a.o_stride};
  if (shared > 0) ValueDims<R>(value_row, rows, a.head_dim, 0, shared, fetch);
  for (int r = 0; r < R; ++r, rows.p += kPairsOfChunk, rows.o += a.o_stride) {
    if (a.n_keys[row + r] > shared) {
      ValueDims<1>(value_row, rows, a.head_dim, shared, a.n_keys[row + r], fetch);
    }
  }
}

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type != KvType::kBF16) return avx512::Scores(a);
  Fetch fetch(a.next, int64_t{a.n_rows} * (a.block_end - a.block_begin) * a.head_dim);
  ForEachTile<kMostRows>(a.n_rows,
                         [&](auto rows, int row) { ScoreRows<decltype(rows)::kValue>(a, row, fetch); });
}

void Values(const ValuesArgs& a) {
  if (a.type != KvType::kBF16) return avx512::Values(a);
  Fetch fetch(a.next, SeenKeys(a) * a.head_dim / 16);
  ForEachTile<kMostRows>(a.n_rows,
                         [&](auto rows, int row) { ChunkValueTile<decltype(rows)::kValue>(a, row, fetch); });
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type != KvType::kBF16) return avx512::GatheredValues(a);
  ForEachTile<kMostRows>(a.n_rows, [&](auto count, int row) {
    constexpr int kRows = decltype(count)::kValue;
    alignas(64) uint32_t p[kRows * kPairsOfChunk];
    for (int r = 0; r < kRows; ++r) {
      RoundRow(a.p + (row + r) * a.p_stride, a.n_keys, p + r * kPairsOfChunk);
    }
    Fetch nothing({}, 0);
    ValueDims<kRows>(ScatteredRows{a.values}, {p, a.o + row * a.o_stride, a.o_stride}, a.head_dim, 0,
                     a.n_keys, nothing);
  });
}

}  // namespace longspec::kernels::avx512_bf16
