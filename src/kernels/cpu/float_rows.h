// SPDX-License-Identifier: Apache-2.0
//
// Matrix products in arithmetic "f32": one chain of fma per row and output row, so independent chains hide
// its latency. Tiles of R rows against G groups of 16 output rows, over a set's `Lanes` (lanes.h). Everything
// lives in an unnamed namespace on purpose: files built for different instruction sets include this, and each
// gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/weight_traits.h"
#include "kernels/cpu/weights_ahead.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

template <WeightFormat F>
inline constexpr size_t kWeightBytes = F == WeightFormat::kF32 ? 4 : 2;

// The 16 weights that value k is multiplied with.
template <typename Lanes, WeightFormat F>
[[gnu::always_inline]] inline typename Lanes::Vector LoadWeights(const std::byte* group, int64_t k) {
  const std::byte* p = group + static_cast<size_t>(k) * kRowGroup * kWeightBytes<F>;
  if constexpr (F == WeightFormat::kF32) {
    return Lanes::LoadFloats(p);
  } else if constexpr (F == WeightFormat::kF16) {
    return Lanes::LoadHalf(p);
  } else {
    return Lanes::LoadBf16(p);
  }
}

// Writes one group's outputs of one row, as far as the matrix has any.
template <typename Lanes>
[[gnu::always_inline]] inline void StoreOutputs(float* y, int64_t n_out, int group,
                                                const typename Lanes::Vector& sums, bool add) {
  const int64_t first = int64_t{group} * kRowGroup;
  y += first;
  if (first + kRowGroup <= n_out) return Lanes::Store(y, add ? Lanes::Add(Lanes::Load(y), sums) : sums);
  const auto n = static_cast<int>(n_out - first);
  Lanes::StorePart(y, n, add ? Lanes::Add(Lanes::LoadPart(y, n), sums) : sums);
}

// kFetch: the weights of the G groups behind are asked for.
template <typename Lanes, WeightFormat F, int R, int G, bool kFetch>
[[gnu::noinline]] void FloatTile(const MatmulFloatArgs& a, int group, int row) {
  constexpr int kTogether = kLoadedTogether<Lanes, G>;
  typename Lanes::Vector acc[R][G];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[r][g] = Lanes::Zero();
  }
  const size_t group_bytes = a.w->group_bytes;
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * group_bytes;
  const std::byte* next = weights + G * group_bytes;
  constexpr size_t kStep = G * kRowGroup * kWeightBytes<F>;  // bytes that all groups have of a k
  const float* x = a.x + row * a.x_stride;
  const int64_t n_in = a.w->n_in, x_stride = a.x_stride;
  for (int64_t k = 0; k < n_in; ++k) {
    if constexpr (kFetch) {
#pragma GCC unroll 4
      for (size_t at = 0; at < kStep; at += 64) FetchLine(next + at);
      next += kStep;
    }
#pragma GCC unroll 4
    for (int first = 0; first < G; first += kTogether) {
      typename Lanes::Vector w[kTogether];
#pragma GCC unroll 4
      for (int g = 0; g < kTogether; ++g) {
        w[g] = LoadWeights<Lanes, F>(weights + static_cast<size_t>(first + g) * group_bytes, k);
      }
      AddProducts<Lanes>(x + k, x_stride, w, first, acc);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      StoreOutputs<Lanes>(a.y + (row + r) * a.y_stride, a.w->n_out, group + g, acc[r][g], a.add);
    }
  }
}

// tile(Count<rows>(), Count<groups>(), group, row) for all rows and groups: fewer rows take more groups at
// once.
template <typename Tile>
[[gnu::always_inline]] inline void ForEachFloatTile(const MatmulFloatArgs& a, const Tile& tile) {
  ForEachWholeTile<4>(a.n_rows, [&](auto rows, int row) {
    constexpr int kRows = decltype(rows)::kValue, kGroups = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
    int group = a.group_begin;
    for (; group + kGroups <= a.group_end; group += kGroups) tile(rows, Count<kGroups>(), group, row);
    if constexpr (kGroups > 1) {
      for (; group < a.group_end; ++group) tile(rows, Count<1>(), group, row);
    }
  });
}

}  // namespace
}  // namespace longspec::kernels
