// SPDX-License-Identifier: Apache-2.0
//
// Arithmetics "bf16" and "bf16-amx" (ops.h) with f32 products, 16 sums side by side, for instruction sets
// that do not have them: any machine reproduces what another computed with instructions of its own.
// (Attention in "bf16", a common cache type, has faster loops: bf16_pairs.h.)
//
// `Lanes` is a set's (lanes.h), and has besides LoadBf16(const std::byte*), BroadcastTwo(const uint16_t*
// bf16, of the first, of the second), and kRows, the rows of a tile that its registers hold.
//
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

enum class Bf16Order : uint8_t { kPairs, kTiles };

// Rows of the left factor: numbers rounded to bf16, then zeros up to a multiple of 32.
struct LeftRows {
  const uint16_t* a;
  int64_t stride;  // numbers
};

// The products of k and k + 1 of R rows, with the numbers of b(k) and b(k + 1), or with zeros from k = n on.
// In "bf16" even and odd are the same sums.
template <typename Lanes, int R, typename B>
[[gnu::always_inline]] inline void AddTwo(const LeftRows& rows, int64_t k, int64_t n, const B& b,
                                          typename Lanes::Vector (&even)[R],
                                          typename Lanes::Vector (&odd)[R]) {
  const typename Lanes::Vector first = k < n ? Lanes::LoadBf16(b(k)) : Lanes::Zero();
  const typename Lanes::Vector second = k + 1 < n ? Lanes::LoadBf16(b(k + 1)) : Lanes::Zero();
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    typename Lanes::Vector left_even, left_odd;
    Lanes::BroadcastTwo(rows.a + r * rows.stride + k, left_even, left_odd);
    odd[r] = Lanes::Fma(left_odd, second, odd[r]);
    even[r] = Lanes::Fma(left_even, first, even[r]);
  }
}

// acc[r] and the products a[r][k] * b(k) of k = 0 .. n - 1, b(k) being where 16 numbers lie. In a mode that
// flushes denormals.
template <typename Lanes, Bf16Order kOrder, int R, typename B>
[[gnu::always_inline]] inline void SumProducts(const LeftRows& rows, int64_t n, const B& b,
                                               typename Lanes::Vector (&acc)[R]) {
  if constexpr (kOrder == Bf16Order::kPairs) {
    for (int64_t k = 0; k < n; k += 2) AddTwo<Lanes, R>(rows, k, n, b, acc, acc);
    return;
  }
  for (int64_t block = 0; block < n; block += kAmxBlock) {
    typename Lanes::Vector even[R], odd[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) even[r] = odd[r] = Lanes::Zero();
    if (block + kAmxBlock <= n) {
      for (int64_t k = block; k < block + kAmxBlock; k += 2) {
        AddTwo<Lanes, R>(rows, k, k + 2, b, even, odd);
      }
    } else {
      for (int64_t k = block; k < block + kAmxBlock; k += 2) AddTwo<Lanes, R>(rows, k, n, b, even, odd);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = Lanes::Add(acc[r], Lanes::Add(even[r], odd[r]));
  }
}

// f(Count<rows>(), row) for tiles of n_rows rows.
template <int kRows, typename F>
inline void ForEachLanesTile(int n_rows, const F& f) {
  int row = 0;
  for (; row + kRows <= n_rows; row += kRows) f(Count<kRows>(), row);
  if constexpr (kRows > 4) {
    for (; row + 3 <= n_rows; row += 3) f(Count<3>(), row);
  }
  for (; row < n_rows; ++row) f(Count<1>(), row);
}

// ---- Matrix products
// ----------------------------------------------------------------------------------------------

// Sums of R rows and one group of outputs: sums (R, 16).
template <typename Lanes, Bf16Order kOrder, int R>
[[gnu::noinline]] void GroupSums(const MatmulBf16Args& a, int group, int row, float* sums) {
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const auto at = [&](int64_t k) { return weights + static_cast<size_t>(k) * kRowGroup * kBf16Bytes; };
  typename Lanes::Vector acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = Lanes::Zero();
  SumProducts<Lanes, kOrder, R>({a.x + row * a.x_stride, a.x_stride}, a.w->n_in, at, acc);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) Lanes::Store(sums + r * kRowGroup, acc[r]);
}

// One row's 16 sums to its outputs of a group, as far as there are any.
inline void StoreSums(const MatmulBf16Args& a, int group, int row, const float* sums) {
  float* y = a.y + row * a.y_stride;
  const int64_t first = int64_t{group} * kRowGroup;
  for (int64_t o = first; o < first + kRowGroup && o < a.w->n_out; ++o) {
    y[o] = a.add ? y[o] + sums[o - first] : sums[o - first];
  }
}

template <typename Lanes, Bf16Order kOrder>
inline void MatmulInLanes(const MatmulBf16Args& a) {
  for (int group = a.group_begin; group < a.group_end; ++group) {
    ForEachLanesTile<Lanes::kRows>(a.n_rows, [&](auto rows, int row) {
      constexpr int kRows = decltype(rows)::kValue;
      float sums[kRows * kRowGroup];
      {
        const FlushDenormals flush;
        GroupSums<Lanes, kOrder, kRows>(a, group, row, sums);
      }
      for (int r = 0; r < kRows; ++r) StoreSums(a, group, row + r, sums + r * kRowGroup);
    });
  }
}

// ---- Attention in "bf16-amx"
// --------------------------------------------------------------------------------------

// Unscaled scores of R rows, whose queries are rounded in q (R, kMaxHeadDim).
template <typename Lanes, int R>
[[gnu::noinline]] void TileScores(const ScoresArgs& a, const uint16_t* q, int row) {
  for (int block = a.block_begin; block < a.block_end; ++block) {
    const std::byte* keys = a.keys + static_cast<size_t>(block * a.head_dim) * kKeyGroup * kBf16Bytes;
    const auto at = [&](int64_t d) { return keys + static_cast<size_t>(d) * kKeyGroup * kBf16Bytes; };
    typename Lanes::Vector acc[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = Lanes::Zero();
    SumProducts<Lanes, Bf16Order::kTiles, R>({q, kMaxHeadDim}, a.head_dim, at, acc);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) Lanes::Store(a.out + (row + r) * a.out_stride + block * kKeyGroup, acc[r]);
  }
}

template <typename Lanes, typename Round>
inline void ScoresInTiles(const ScoresArgs& a, const Round& round) {
  ForEachLanesTile<Lanes::kRows>(a.n_rows, [&](auto rows, int row) {
    constexpr int kRows = decltype(rows)::kValue;
    uint16_t q[kRows * kMaxHeadDim];
    for (int r = 0; r < kRows; ++r)
      round(a.q + int64_t{row + r} * a.head_dim, a.head_dim, q + r * kMaxHeadDim);
    {
      const FlushDenormals flush;
      TileScores<Lanes, kRows>(a, q, row);
    }
    for (int r = 0; r < kRows; ++r) {
      float* out = a.out + (row + r) * a.out_stride;
      for (int at = a.block_begin * kKeyGroup; at < a.block_end * kKeyGroup; at += kKeyGroup) {
        Lanes::Store(out + at, Lanes::Scale(Lanes::Load(out + at), a.scale));
      }
    }
  });
}

// Values of `n_keys` keys for R rows, whose weights are rounded in p (R, kChunk).
template <typename Lanes, int R, typename ValueRow>
[[gnu::noinline]] void TileValues(const ValueRow& value_row, const uint16_t* p, int n_keys, int head_dim,
                                  float* o, int64_t o_stride) {
  for (int d = 0; d < head_dim; d += kRowGroup) {
    const auto at = [&](int64_t key) {
      return value_row(static_cast<int>(key)) + static_cast<size_t>(d) * kBf16Bytes;
    };
    typename Lanes::Vector acc[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = Lanes::Load(o + r * o_stride + d);
    SumProducts<Lanes, Bf16Order::kTiles, R>({p, kChunk}, n_keys, at, acc);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) Lanes::Store(o + r * o_stride + d, acc[r]);
  }
}

// For ValuesArgs and GatheredValuesArgs.
template <typename Lanes, typename Args, typename ValueRow, typename Round>
inline void ValuesInTiles(const Args& a, const ValueRow& value_row, const Round& round) {
  ForEachLanesTile<Lanes::kRows>(a.n_rows, [&](auto rows, int row) {
    constexpr int kRows = decltype(rows)::kValue;
    uint16_t p[kRows * kChunk];
    bool equal = true;
    for (int r = 0; r < kRows; ++r) {
      const int n_keys = KeysOfRow(a, row + r);
      equal = equal && n_keys == KeysOfRow(a, row);
      round(a.p + (row + r) * a.p_stride, n_keys, p + r * kChunk);
    }
    float* o = a.o + row * a.o_stride;
    const FlushDenormals flush;
    if (equal) return TileValues<Lanes, kRows>(value_row, p, KeysOfRow(a, row), a.head_dim, o, a.o_stride);
    for (int r = 0; r < kRows; ++r) {
      TileValues<Lanes, 1>(value_row, p + r * kChunk, KeysOfRow(a, row + r), a.head_dim, o + r * a.o_stride,
                           0);
    }
  });
}

}  // namespace
}  // namespace longspec::kernels
