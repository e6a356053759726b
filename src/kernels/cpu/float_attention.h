// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, in arithmetic "f32". A block of 16 keys is one vector of scores; 16
// head dimensions are one vector of values. Rows are all the query rows that look at one KV head (tree nodes
// times the heads of a group), so a tile of rows shares every key and value it loads.
//
// A `Set` is a set's `Lanes` (lanes.h), and has besides
//   Widen<T>(codes, high, scales)        16 numbers of a type with scales; `high`: in the upper nibbles
//   BroadcastHalf(p)                     an f16 number, in all lanes
//   kFetches                             whether what is read next is asked for (fetch.h)
//   kTileRows, kGatheredRows             the most rows of a tile
//   kEqualTiles                          tiles as equal as can be, else whole ones while they last
//   ScoreBlocks(rows), ValueVectors(rows)   neighbouring blocks, or vectors of values, of a tile
//
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/kv_traits.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/value_rows.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// 16 values of one position.
template <KvType T>
inline constexpr size_t kRowBytes16 = kCodeBytes16<T> + kScaleBytes32<T> / 2;

// 16 numbers of a type without scales.
template <typename Lanes, KvType T>
[[gnu::always_inline]] inline typename Lanes::Vector LoadAs(const std::byte* p) {
  if constexpr (T == KvType::kF32) {
    return Lanes::LoadFloats(p);
  } else if constexpr (T == KvType::kF16) {
    return Lanes::LoadHalf(p);
  } else {
    return Lanes::LoadBf16(p);
  }
}

template <typename Set, typename F>
[[gnu::always_inline]] inline void ForEachRowTile(int n_rows, const F& f) {
  if constexpr (Set::kEqualTiles) {
    ForEachTile<Set::kTileRows>(n_rows, f);
  } else {
    ForEachWholeTile<Set::kTileRows>(n_rows, f);
  }
}

// ---- Scores
// -------------------------------------------------------------------------------------------------------------

template <typename Set, KvType T, int R, int B>
[[gnu::always_inline]] inline void SumFloats(const std::byte* keys, size_t block_bytes, const float* q,
                                             int head_dim, typename Set::Vector (&acc)[R][B], Fetch& fetch) {
  constexpr int kTogether = kLoadedTogether<Set, B>;
  for (int begin = 0; begin < head_dim; begin += kStride<R>) {
    fetch.Step(R * B * kStride<R>);
    for (int i = begin; i < begin + kStride<R>; ++i) {
      const int d = Ordered<T>(i);
      const std::byte* at = keys + static_cast<size_t>(d) * kCodeBytes16<T>;
#pragma GCC unroll 4
      for (int first = 0; first < B; first += kTogether) {
        typename Set::Vector k[kTogether];
#pragma GCC unroll 4
        for (int b = 0; b < kTogether; ++b) {
          k[b] = LoadAs<Set, T>(at + static_cast<size_t>(first + b) * block_bytes);
        }
        AddProducts<Set>(q + d, head_dim, k, first, acc);
      }
    }
  }
}

template <typename Set, KvType T, int R, int B>
[[gnu::always_inline]] inline void SumQuantized(const std::byte* keys, size_t block_bytes, const float* q,
                                                int head_dim, typename Set::Vector (&acc)[R][B],
                                                Fetch& fetch) {
  constexpr int kTogether = kLoadedTogether<Set, B>;
  constexpr int kStep = T == KvType::kQ4_0 ? 2 : 1;  // dimensions in 16 bytes
  const std::byte* scales = keys + static_cast<size_t>(head_dim) * kCodeBytes16<T>;
  for (int block = 0; block < head_dim; block += kQuantBlock, scales += 2 * kKeyGroup) {
    typename Set::Vector scale[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      scale[b] = Set::LoadHalf(scales + static_cast<size_t>(b) * block_bytes);
    }
    fetch.Step(R * B * kQuantBlock);
    for (int d = block; d < block + kQuantBlock; d += kStep, keys += kKeyGroup) {
#pragma GCC unroll 2
      for (int step = 0; step < kStep; ++step) {
#pragma GCC unroll 4
        for (int first = 0; first < B; first += kTogether) {
          typename Set::Vector k[kTogether];
#pragma GCC unroll 4
          for (int b = 0; b < kTogether; ++b) {
            const std::byte* codes = keys + static_cast<size_t>(first + b) * block_bytes;
            k[b] = Set::template Widen<T>(codes, step == 1, scale[first + b]);
          }
          AddProducts<Set>(q + d + step, head_dim, k, first, acc);
        }
      }
    }
  }
}

// R query rows against B neighbouring blocks of 16 keys.
template <typename Set, KvType T, int R, int B>
inline void ScoreTile(const ScoresArgs& a, int row, int block, Fetch& fetch) {
  const size_t block_bytes = static_cast<size_t>(a.head_dim) * kRowBytes16<T>;
  const std::byte* keys = a.keys + static_cast<size_t>(block) * block_bytes;
  const float* q = a.q + int64_t{row} * a.head_dim;
  typename Set::Vector acc[R][B];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) acc[r][b] = Set::Zero();
  }
  if constexpr (kHasScales<T>) {
    SumQuantized<Set, T>(keys, block_bytes, q, a.head_dim, acc, fetch);
  } else {
    SumFloats<Set, T>(keys, block_bytes, q, a.head_dim, acc, fetch);
  }
  const float scale = a.scale;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* out = a.out + (row + r) * a.out_stride + int64_t{block} * kKeyGroup;
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) Set::Store(out + kKeyGroup * b, Set::Scale(acc[r][b], scale));
  }
}

// Not inlined: each number of rows has registers of its own.
template <typename Set, KvType T, int R>
[[gnu::noinline]] void ScoreRows(const ScoresArgs& a, int row, Fetch& fetch) {
  constexpr int kBlocks = Set::ScoreBlocks(R);
  int block = a.block_begin;
  for (; block + kBlocks <= a.block_end; block += kBlocks) {
    ScoreTile<Set, T, R, kBlocks>(a, row, block, fetch);
  }
  if constexpr (kBlocks > 1) {
    for (; block < a.block_end; ++block) ScoreTile<Set, T, R, 1>(a, row, block, fetch);
  }
}

template <typename Set, KvType T>
[[gnu::noinline]] void ScoresOf(const ScoresArgs& a) {
  Fetch fetch(a.next, int64_t{a.n_rows} * (a.block_end - a.block_begin) * a.head_dim);
  ForEachRowTile<Set>(a.n_rows,
                      [&](auto rows, int row) { ScoreRows<Set, T, decltype(rows)::kValue>(a, row, fetch); });
}

// ---- Values
// -------------------------------------------------------------------------------------------------------------

// The weights and outputs of a tile's first row.
struct ValueRows {
  const float* p;
  int64_t p_stride;
  float* o;
  int64_t o_stride;
  int head_dim;
};

// N vectors of one key's values from dimension d on: a multiple of 32, or of 16 if N is 1.
template <typename Set, KvType T, int N>
[[gnu::always_inline]] inline void LoadValues(const std::byte* row, int head_dim, int d,
                                              typename Set::Vector (&value)[N]) {
  if constexpr (!kHasScales<T>) {
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
      value[v] = LoadAs<Set, T>(row + static_cast<size_t>(d / 16 + v) * kCodeBytes16<T>);
    }
  } else {
    const std::byte* scales = row + static_cast<size_t>(head_dim) / 16 * kCodeBytes16<T>;
    typename Set::Vector scale = Set::Zero();
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
      const auto at = static_cast<size_t>(d + 16 * v);
      if (v % 2 == 0) scale = Set::BroadcastHalf(scales + at / kQuantBlock * 2);
      const bool high = N > 1 ? v % 2 == 1 : d % kQuantBlock != 0;
      value[v] = Set::template Widen<T>(row + (T == KvType::kQ4_0 ? at / kQuantBlock * 16 : at), high, scale);
    }
  }
}

// One key for R rows: V vectors of its values, from dimension d on.
template <typename Set, KvType T, int R, int V>
[[gnu::always_inline]] inline void AddValues(const std::byte* row, const ValueRows& rows, int key, int d,
                                             typename Set::Vector (&acc)[R][V]) {
  constexpr int kTogether = kLoadedTogether<Set, V>;
#pragma GCC unroll 8
  for (int first = 0; first < V; first += kTogether) {
    typename Set::Vector value[kTogether];
    LoadValues<Set, T>(row, rows.head_dim, d + 16 * first, value);
    AddProducts<Set>(rows.p + key, rows.p_stride, value, first, acc);
  }
}

// R rows times V vectors of head dimensions from d on, over keys [begin, end); value_row(key) is where a
// key's values lie.
template <typename Set, KvType T, int R, int V, typename ValueRow>
inline void ValueTile(const ValueRow& value_row, const ValueRows& rows, int begin, int end, int d,
                      Fetch& fetch) {
  typename Set::Vector acc[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) acc[r][v] = Set::Load(rows.o + r * rows.o_stride + d + 16 * v);
  }
  const int whole = kInPairs<T> ? end & ~1 : end;
  for (int i = begin; i < whole;) {
    const int stop = !Set::kFetches || whole - i < kStride<R> ? whole : i + kStride<R>;
    if constexpr (Set::kFetches) fetch.Step(R * V * (stop - i));
    for (; i < stop; ++i) {
      const int key = Ordered<T>(i);
      AddValues<Set, T>(value_row(key), rows, key, d, acc);
    }
  }
  if (whole < end) {  // half a pair: the other half is a product of zeros
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[r][v] = Set::Add(acc[r][v], Set::Zero());
    }
    AddValues<Set, T>(value_row(whole), rows, whole, d, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) Set::Store(rows.o + r * rows.o_stride + d + 16 * v, acc[r][v]);
  }
}

// All head dimensions, as many vectors at a time as a tile has while they last. head_dim is a multiple of 16.
template <typename Set, KvType T, int R, typename ValueRow>
inline void ValueDims(const ValueRow& value_row, const ValueRows& rows, int begin, int end, Fetch& fetch) {
  constexpr int kVectors = Set::ValueVectors(R);
  int d = 0;
  for (; d + 16 * kVectors <= rows.head_dim; d += 16 * kVectors) {
    ValueTile<Set, T, R, kVectors>(value_row, rows, begin, end, d, fetch);
  }
  if constexpr (kVectors == 8) {
    for (; d + 64 <= rows.head_dim; d += 64) ValueTile<Set, T, R, 4>(value_row, rows, begin, end, d, fetch);
  }
  if constexpr (kVectors > 1) {
    for (; d < rows.head_dim; d += 16) ValueTile<Set, T, R, 1>(value_row, rows, begin, end, d, fetch);
  }
}

template <typename Set, KvType T, int R>
void ChunkValueTile(const ValuesArgs& a, int row, Fetch& fetch) {
  const ChunkRows value_row = {a.values, static_cast<size_t>(a.head_dim) / 16 * kRowBytes16<T>};
  int shared = a.n_keys[row];
  for (int r = 1; r < R; ++r) shared = a.n_keys[row + r] < shared ? a.n_keys[row + r] : shared;
  if constexpr (kInPairs<T>) shared &= ~1;
  ValueRows rows = {a.p + row * a.p_stride, a.p_stride, a.o + row * a.o_stride, a.o_stride, a.head_dim};
  if (shared > 0) ValueDims<Set, T, R>(value_row, rows, 0, shared, fetch);
  for (int r = 0; r < R; ++r, rows.p += a.p_stride, rows.o += a.o_stride) {
    if (a.n_keys[row + r] > shared) ValueDims<Set, T, 1>(value_row, rows, shared, a.n_keys[row + r], fetch);
  }
}

template <typename Set, KvType T>
[[gnu::noinline]] void ValuesOf(const ValuesArgs& a) {
  Fetch fetch(Set::kFetches ? a.next : Upcoming{}, Set::kFetches ? SeenKeys(a) * a.head_dim / 16 : 0);
  ForEachRowTile<Set>(
      a.n_rows, [&](auto rows, int row) { ChunkValueTile<Set, T, decltype(rows)::kValue>(a, row, fetch); });
}

template <typename Set, KvType T>
[[gnu::noinline]] void GatheredOf(const GatheredValuesArgs& a) {
  ForEachTile<Set::kGatheredRows>(a.n_rows, [&](auto count, int row) {
    const ScatteredRows value_row = {a.values};
    const ValueRows rows = {a.p + row * a.p_stride, a.p_stride, a.o + row * a.o_stride, a.o_stride,
                            a.head_dim};
    Fetch nothing({}, 0);
    ValueDims<Set, T, decltype(count)::kValue>(value_row, rows, 0, a.n_keys, nothing);
  });
}

// ---- Softmax
// ------------------------------------------------------------------------------------------------------------

// exp(scores - top) of N vectors, added to the stripes in their order.
template <typename Lanes, int N>
[[gnu::always_inline]] inline void SubtractAndExp(typename Lanes::Vector (&e)[N],
                                                  const typename Lanes::Vector& top,
                                                  typename Lanes::Vector& stripes) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) e[i] = Lanes::Sub(e[i], top);
  Lanes::Exp(e);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) stripes = Lanes::Add(stripes, e[i]);
}

template <typename Lanes, int N>
[[gnu::always_inline]] inline void ExpInPlace(float* scores, const typename Lanes::Vector& top,
                                              typename Lanes::Vector& stripes) {
  typename Lanes::Vector e[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) e[i] = Lanes::Load(scores + kLanes * i);
  SubtractAndExp<Lanes>(e, top, stripes);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) Lanes::Store(scores + kLanes * i, e[i]);
}

template <typename Lanes>
inline void SoftmaxChunkBy(float* scores, int n, float* state) {
  // Lanes past the end hold -inf: exp gives them 0, which no stripe feels.
  const int whole = n & ~(kLanes - 1), rest = n - whole;
  typename Lanes::Vector last[1] = {Lanes::All(-__builtin_inff())};
  if (rest > 0) last[0] = Lanes::LoadPart(scores + whole, rest, -__builtin_inff());
  typename Lanes::Vector m = last[0];
  for (int i = 0; i < whole; i += kLanes) m = Lanes::Max(m, Lanes::Load(scores + i));
  const float largest = Lanes::MaxOf(m) + 0.0F;  // never -0
  const typename Lanes::Vector top = Lanes::All(largest);
  typename Lanes::Vector stripes = Lanes::Zero();
  constexpr int kTogether = Lanes::kExpTogether;
  int i = 0;
  for (; i + kTogether * kLanes <= whole; i += kTogether * kLanes) {
    ExpInPlace<Lanes, kTogether>(scores + i, top, stripes);
  }
  if constexpr (kTogether > 1) {
    for (; i < whole; i += kLanes) ExpInPlace<Lanes, 1>(scores + i, top, stripes);
  }
  if (rest > 0) {
    SubtractAndExp<Lanes>(last, top, stripes);
    Lanes::StorePart(scores + whole, rest, last[0]);
  }
  state[0] = largest;
  state[1] = Lanes::StripeSum(stripes);
}

template <typename Lanes>
inline void MergeStateBy(float* state, const float* chunk, int head_dim) {
  const float m = state[0] < chunk[0] ? chunk[0] : state[0];
  typename Lanes::Vector factors[1] = {Lanes::Two(state[0] - m, chunk[0] - m)};
  Lanes::Exp(factors);
  const float a = Lanes::First(factors[0]), b = Lanes::Second(factors[0]);
  state[0] = m;
  state[1] = __builtin_fmaf(state[1], a, chunk[1] * b);
  for (int d = kStateHeader; d < kStateHeader + head_dim; d += kLanes) {
    Lanes::Store(state + d,
                 Lanes::Fma(Lanes::Load(state + d), Lanes::All(a), Lanes::Scale(Lanes::Load(chunk + d), b)));
  }
}

template <typename Lanes>
inline void FinishStateBy(const float* state, int head_dim, float* out) {
  const float inverse = 1.0F / state[1];
  for (int d = 0; d < head_dim; d += kLanes) {
    Lanes::Store(out + d, Lanes::Scale(Lanes::Load(state + kStateHeader + d), inverse));
  }
}

}  // namespace
}  // namespace longspec::kernels
