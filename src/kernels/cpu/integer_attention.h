// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8" (ops.h), around what an instruction set makes of 32 numbers at a time. Rows
// are all the query rows that look at one KV head; they share every key that is loaded, and values that are
// put in order once for all of them. Everything lives in an unnamed namespace on purpose: files built for
// different instruction sets include this, and each gets its own copy.
//
// A set has
//   kQueryRows, kValueRows                         the most rows of a tile of scores, and of weighted values
//   Query, PrepareQuery(x, head_dim, query)        one row's integers and their scales
//   Keys, PrepareKeys(block, head_dim, keys)       16 keys as scores of all rows want them; kPreparesKeys:
//                                                  whether that costs anything
//   ScoreBlock<R>(keys, head_dim, queries, scale, out, out_stride)   of R rows
//   LoadScales<N>(rows, at, scales)                N neighbouring f16 scales of 32 keys, (N, 32)
//   Interleave(rows, dims, values)                 32 values of 32 keys, as AddValues wants them
//   Weights, PrepareWeights(p, scales, n_groups, n, weights)   of one row: p * scales for each 32 dimensions,
//                                                  of the first n of 32 keys only
//   AddValues<R>(values, weights, group, o, o_stride)   o += d * (sum over the keys of q * v), of 32
//                                                  dimensions of R rows
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/value_rows.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline constexpr int kMostGroups = kMaxHeadDim / kQuantBlock;  // of dimensions
inline constexpr size_t kI8Bytes32 = kQuantBlock + 2;          // 32 numbers of one position
inline constexpr size_t kValueBytes = size_t{kQuantBlock} * kQuantBlock;
// In place of a key that nobody sees: zeros, and scales of zero.
inline constexpr std::byte kNoValues[kMostGroups * kI8Bytes32] = {};

inline constexpr int kPreparedRows = 24;             // whose queries are in the first-level cache together
inline constexpr float kLeastMagnitude = 0x1p-120F;  // of the largest of 32 numbers; else all integers are 0

// Keys that are used as they lie.
struct KeyBlock {
  const std::byte* block;
};
inline const std::byte* KeysOf(const ScoresArgs& a, int block) {
  const size_t block_bytes = static_cast<size_t>(a.head_dim) / kQuantBlock * kI8Bytes32 * kKeyGroup;
  return a.keys + static_cast<size_t>(block) * block_bytes;
}

// f(Count<N>, group): of four groups of dimensions, or what is left in twos and ones.
template <typename F>
[[gnu::always_inline]] inline void ForGroups(int n_groups, const F& f) {
  int group = 0;
  for (; group + 4 <= n_groups; group += 4) f(Count<4>(), group);
  if (group + 2 <= n_groups) {
    f(Count<2>(), group);
    group += 2;
  }
  if (group < n_groups) f(Count<1>(), group);
}

// Blocks [begin, end) for R rows; `keys` are those of the only one, if they are prepared. `out`: of the first
// row.
template <typename Set, int R>
[[gnu::noinline]] void ScoreTile(const ScoresArgs& a, typename Set::Keys& keys,
                                 const typename Set::Query* queries, int begin, int end, float* out,
                                 Fetch& fetch) {
  for (int block = begin; block < end; ++block) {
    fetch.Step(R);
    if constexpr (!Set::kPreparesKeys) Set::PrepareKeys(KeysOf(a, block), a.head_dim, keys);
    Set::template ScoreBlock<R>(keys, a.head_dim, queries, a.scale, out + int64_t{block} * kKeyGroup,
                                a.out_stride);
  }
}

// A step of `fetch` is 16 keys for one row.
template <typename Set>
inline void IntegerScores(const ScoresArgs& a) {
  Fetch fetch(a.next, int64_t{a.n_rows} * (a.block_end - a.block_begin));
  typename Set::Query queries[kPreparedRows];
  typename Set::Keys keys;
  for (int first = 0; first < a.n_rows;) {
    const int n_rows = NextTile(a.n_rows - first, kPreparedRows);
    for (int row = 0; row < n_rows; ++row)
      Set::PrepareQuery(a.q + int64_t{first + row} * a.head_dim, a.head_dim, queries[row]);
    float* out = a.out + first * a.out_stride;
    const auto score = [&](int begin, int end) {
      ForEachTile<Set::kQueryRows>(n_rows, [&](auto rows, int row) {
        ScoreTile<Set, decltype(rows)::kValue>(a, keys, queries + row, begin, end, out + row * a.out_stride,
                                               fetch);
      });
    };
    if constexpr (Set::kPreparesKeys) {
      for (int block = a.block_begin; block < a.block_end; ++block) {
        Set::PrepareKeys(KeysOf(a, block), a.head_dim, keys);
        score(block, block + 1);
      }
    } else {
      score(a.block_begin, a.block_end);
    }
    first += n_rows;
  }
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
  ForGroups(head_dim / kQuantBlock, [&](auto count, int g) {
    Set::template LoadScales<decltype(count)::kValue>(group.rows, head_dim + 2 * g, group.scales + g);
  });
}

// All dimensions of R rows.
template <typename Set, int R>
[[gnu::noinline]] void AddTile(const int8_t* values, const typename Set::Weights* weights, int n_groups,
                               float* o, int64_t o_stride, Fetch& fetch) {
  for (int g = 0; g < n_groups; ++g, values += kValueBytes, o += kQuantBlock) {
    fetch.Step(R);
    Set::template AddValues<R>(values, weights, g, o, o_stride);
  }
}

// keys_of(row): how many keys a row sees. A step of `fetch` is 32 dimensions of 32 keys for one row.
template <typename Set, typename Args, typename ValueRow, typename KeysOf>
inline void IntegerValues(const Args& a, const ValueRow& value_row, const KeysOf& keys_of,
                          const Upcoming& next) {
  int most = 0;
  int64_t key_groups = 0;
  for (int row = 0; row < a.n_rows; ++row) {
    const int n = keys_of(row);
    most = n > most ? n : most;
    key_groups += (n + kQuantBlock - 1) / kQuantBlock;
  }
  const int n_groups = a.head_dim / kQuantBlock;
  Fetch fetch(next, key_groups * n_groups);
  KeyGroup group;
  alignas(64) int8_t values[kMostGroups * kValueBytes];
  typename Set::Weights weights[Set::kValueRows];
  for (int begin = 0; begin < most; begin += kQuantBlock) {
    FindGroup<Set>(value_row, begin, most - begin, a.head_dim, group);
    for (int g = 0; g < n_groups; ++g)
      Set::Interleave(group.rows, g * kQuantBlock, values + static_cast<size_t>(g) * kValueBytes);
    for (int row = 0; row < a.n_rows;) {
      int end = row;  // of the neighbours that see some of these keys
      while (end < a.n_rows && keys_of(end) > begin) ++end;
      ForEachTile<Set::kValueRows>(end - row, [&](auto rows, int first) {
        constexpr int kRows = decltype(rows)::kValue;
        for (int r = 0; r < kRows; ++r) {
          const int at = row + first + r;
          Set::PrepareWeights(a.p + at * a.p_stride + begin, group.scales, n_groups, keys_of(at) - begin,
                              weights[r]);
        }
        AddTile<Set, kRows>(values, weights, n_groups, a.o + (row + first) * a.o_stride, a.o_stride, fetch);
      });
      row = end > row ? end : row + 1;
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
