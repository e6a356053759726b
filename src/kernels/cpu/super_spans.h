// SPDX-License-Identifier: Apache-2.0
//
// How rows pass over the packed weights of a group in arithmetic "q8k". Few rows take the group at once. Many
// take some super-blocks at a time, which stay in the first-level cache while the tiles of rows pass over
// them; where taking packed weights apart costs time, they are unpacked to bytes once for all of these rows.
// Everything lives in an unnamed namespace: files built for different instruction sets may include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weight_traits.h"
#include "kernels/cpu/weights_ahead.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

constexpr int kBlocks = kSuperBlock / kQuantBlock;
constexpr int kSpan = 4;        // super-blocks that all tiles pass over before the next ones
constexpr int kRowBlock = 128;  // rows whose sums are kept meanwhile
constexpr int kNever = kRowBlock + 1;

// What the tiles of some rows work on: super-blocks [begin, end) of a group.
template <typename Scales>
struct Span {
  const Scales* scales;  // of the group
  int begin, end;
  const std::byte* quants;  // of super-block `begin`
  const std::byte* next;    // what is fetched meanwhile: the next group, or its part; null: nothing
  const Q8KBlock* x;        // (n_rows, n_super)
  int n_super;
  float* acc;  // (n_rows, 16), of the super-blocks before

  // Of a row, from super-block `begin` on.
  [[gnu::always_inline]] const Q8KBlock* Row(int row) const { return x + int64_t{row} * n_super + begin; }
};

// One group and rows [row, row + n_rows), at most kRowBlock. An Isa has
//   Scales<F>(group, n_super)                    where a group's scales are
//   kTileRows                                    the most rows of a tile of packed weights
//   kManyRows<F>                                 from so many rows on unpacking pays; kNever
//   Unpack<F>(packed, n_block, bytes)            unless that is never
//   Tiles<F, Quants>(span, n_rows)               adds the span to the sums of all rows
//   Store(a, group, row, n_rows, acc)            writes the sums
template <WeightFormat F, class Isa>
void MultiplyGroup(const MatmulQ8KArgs& a, int group, int row, int n_rows) {
  using Scales = typename Isa::template Scales<F>;
  const auto n_super = static_cast<int>(a.w->n_in / kSuperBlock);
  const std::byte* quants = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const Scales scales(quants, n_super);
  alignas(64) float acc[kRowBlock * kRowGroup];
  for (int i = 0; i < n_rows * kRowGroup; ++i) acc[i] = 0.0F;
  const int step = n_rows <= Isa::kTileRows ? n_super : kSpan;
  for (int begin = 0; begin < n_super; begin += step) {
    const std::byte* packed = quants + static_cast<size_t>(begin) * kBlocks * kBlockBytes<F>;
    const std::byte* next = AfterGroup(a, group) + static_cast<size_t>(begin * kBlocks * kBlockLines<F>) * 64;
    Span<Scales> span{.scales = &scales,
                      .begin = begin,
                      .end = begin + step < n_super ? begin + step : n_super,
                      .quants = packed,
                      .next = row == 0 ? next : nullptr,
                      .x = a.x + int64_t{row} * n_super,
                      .n_super = n_super,
                      .acc = acc};
    if constexpr (Isa::template kManyRows<F> != kNever) {
      if (n_rows >= Isa::template kManyRows<F>) {
        alignas(64) std::byte bytes[kSpan * kBlocks * kByteBlock];
        Isa::template Unpack<F>(packed, (span.end - begin) * kBlocks, bytes);
        span.quants = bytes;
        Isa::template Tiles<F, Quants::kBytes>(span, n_rows);
        continue;
      }
    }
    Isa::template Tiles<F, Quants::kPacked>(span, n_rows);
  }
  Isa::Store(a, group, row, n_rows, acc);
}

template <class Isa>
void MultiplyGroups(const MatmulQ8KArgs& a) {
  WithSuperFormat(a.w->format, [&](auto format) {
    for (int group = a.group_begin; group < a.group_end; ++group) {
      for (int row = 0; row < a.n_rows; row += kRowBlock) {
        const int left = a.n_rows - row;
        MultiplyGroup<decltype(format)::kValue, Isa>(a, group, row, left < kRowBlock ? left : kRowBlock);
      }
    }
  });
}

}  // namespace
}  // namespace longspec::kernels
