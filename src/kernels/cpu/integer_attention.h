// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8" (ops.h), around what an instruction set makes of 32 numbers at a time. Rows
// are all the query rows that look at one KV head; they share every key that is loaded, and values that are
// put in order once for all of them. Everything lives in an unnamed namespace on purpose: files built for
// different instruction sets include this, and each gets its own copy.
//
// A set has
//   kQueryRows                                     the most rows of a tile of scores
//   float Quantize(x, q), QuantizeWeights(p, scales, n, q)   32 numbers; returns their scale. Weights are
//                                                  p * scales, of the first n only
//   ScoreBlock<R>(block, head_dim, queries, scale, out, out_stride)   16 keys, R rows
//   LoadScales<N>(rows, at, scales)                N neighbouring f16 scales of 32 keys, (N, 32)
//   Interleave(rows, values)                       32 values of 32 keys, as AddValues wants them
//   AddValues(values, q, d, o)                     o += d * (sum over the keys of q * v), of 32 values
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/value_rows.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline constexpr int kMostGroups = kMaxHeadDim / kQuantBlock;  // of dimensions
inline constexpr size_t kI8Bytes32 = kQuantBlock + 2;          // 32 numbers of one position
inline constexpr size_t kValueBytes = size_t{kQuantBlock} * kQuantBlock;
// In place of a key that nobody sees: zeros, and scales of zero.
inline constexpr std::byte kNoValues[kMostGroups * kI8Bytes32] = {};

// What the numbers are divided by; 0 if they are too small.
inline float InverseOf(float largest) { return largest < 0x1p-120F ? 0.0F : 127.0F / largest; }

template <int R>
struct IntegerQueries {
  alignas(64) int8_t q[R][kMaxHeadDim];
  float d[R][kMostGroups];
  int32_t less_128[R][kMostGroups];  // -128 times the sum of the 32 q
};

template <int N>
struct RowCount {
  static constexpr int kValue = N;
};

template <int R, typename F>
[[gnu::always_inline]] inline void WithRows(int rows, int row, const F& f) {
  if (rows == R) return f(RowCount<R>(), row);
  if constexpr (R > 1) WithRows<R - 1>(rows, row, f);
}

// f(RowCount<rows>, row) for tiles of up to R rows, as equal as can be.
template <int R, typename F>
[[gnu::always_inline]] inline void InTiles(int n_rows, const F& f) {
  for (int row = 0; row < n_rows;) {
    const int left = n_rows - row, tiles = (left + R - 1) / R, rows = (left + tiles - 1) / tiles;
    WithRows<R>(rows, row, f);
    row += rows;
  }
}

template <typename Set, int R>
[[gnu::noinline]] void ScoreRows(const ScoresArgs& a, int row, Fetch& fetch) {
  IntegerQueries<R> queries;
  for (int r = 0; r < R; ++r) {
    const float* q = a.q + int64_t{row + r} * a.head_dim;
    for (int d = 0; d < a.head_dim; d += kQuantBlock) {
      queries.d[r][d / kQuantBlock] = Set::Quantize(q + d, queries.q[r] + d);
      int32_t sum = 0;
      for (int i = 0; i < kQuantBlock; ++i) sum += queries.q[r][d + i];
      queries.less_128[r][d / kQuantBlock] = -128 * sum;
    }
  }
  const size_t block_bytes = static_cast<size_t>(a.head_dim) / kQuantBlock * kI8Bytes32 * kKeyGroup;
  for (int block = a.block_begin; block < a.block_end; ++block) {
    fetch.Step(R);
    Set::template ScoreBlock<R>(a.keys + static_cast<size_t>(block) * block_bytes, a.head_dim, queries,
                                a.scale, a.out + row * a.out_stride + int64_t{block} * kKeyGroup,
                                a.out_stride);
  }
}

// A step of `fetch` is 16 keys for one row.
template <typename Set>
inline void IntegerScores(const ScoresArgs& a) {
  Fetch fetch(a.next, int64_t{a.n_rows} * (a.block_end - a.block_begin));
  InTiles<Set::kQueryRows>(
      a.n_rows, [&](auto rows, int row) { ScoreRows<Set, decltype(rows)::kValue>(a, row, fetch); });
}

// 32 keys of a chunk, or what is seen of them.
struct KeyGroup {
  const std::byte* rows[kQuantBlock];
  alignas(64) float scales[kMostGroups][kQuantBlock];
};

template <typename Set, typename ValueRow>
inline void FindGroup(const ValueRow& value_row, int begin, int n, int head_dim, KeyGroup& group) {
  n = n < kQuantBlock ? n : kQuantBlock;
  for (int i = 0; i < n; ++i) group.rows[i] = value_row(begin + i);
  for (int i = n; i < kQuantBlock; ++i) group.rows[i] = kNoValues;
  const int n_groups = head_dim / kQuantBlock;
  int g = 0;
  for (; g + 4 <= n_groups; g += 4)
    Set::template LoadScales<4>(group.rows, head_dim + 2 * g, group.scales + g);
  if (g + 2 <= n_groups) {
    Set::template LoadScales<2>(group.rows, head_dim + 2 * g, group.scales + g);
    g += 2;
  }
  if (g < n_groups) Set::template LoadScales<1>(group.rows, head_dim + 2 * g, group.scales + g);
}

// keys_of(row): how many keys a row sees.
template <typename Set, typename Args, typename ValueRow, typename KeysOf>
inline void IntegerValues(const Args& a, const ValueRow& value_row, const KeysOf& keys_of,
                          const Upcoming& next) {
  int most = 0;
  for (int row = 0; row < a.n_rows; ++row) most = keys_of(row) > most ? keys_of(row) : most;
  const int n_groups = a.head_dim / kQuantBlock;
  Fetch fetch(next, int64_t{(most + kQuantBlock - 1) / kQuantBlock} * n_groups);
  KeyGroup group;
  alignas(64) int8_t values[kValueBytes];
  alignas(64) uint8_t q[kQuantBlock];
  for (int begin = 0; begin < most; begin += kQuantBlock) {
    FindGroup<Set>(value_row, begin, most - begin, a.head_dim, group);
    for (int g = 0; g < n_groups; ++g) {
      fetch.Step(1);
      Set::Interleave(group.rows, g * kQuantBlock, values);
      const float* p = a.p + begin;
      float* o = a.o + int64_t{g} * kQuantBlock;
      for (int row = 0; row < a.n_rows; ++row, p += a.p_stride, o += a.o_stride) {
        const int n = keys_of(row) - begin;
        if (n <= 0) continue;
        const float d = Set::QuantizeWeights(p, group.scales[g], n, q);
        // They are broadcast from memory: compilers would take the register apart that they were in.
        asm volatile("" : : "r"(q) : "memory");
        Set::AddValues(values, q, d, o);
      }
    }
  }
}

template <typename Set>
inline void IntegerChunkValues(const ValuesArgs& a) {
  const ChunkRows value_row = {a.values, static_cast<size_t>(a.head_dim) / kQuantBlock * kI8Bytes32};
  IntegerValues<Set>(
      a, value_row, [&](int row) { return a.n_keys[row]; }, a.next);
}

template <typename Set>
inline void IntegerGatheredValues(const GatheredValuesArgs& a) {
  IntegerValues<Set>(a, ScatteredRows{a.values}, [&](int) { return a.n_keys; }, {});
}

}  // namespace
}  // namespace longspec::kernels
