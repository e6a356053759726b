// SPDX-License-Identifier: Apache-2.0
//
// Products of quantised weights for many rows: a block of threads is 4 groups of outputs and 32 or 64 rows, a
// warp a group and 32 of the rows, and a thread adds its sums' terms itself, unit after unit. Weights and
// activations come to shared memory in stages of 256 values, one ahead of what is computed.
#pragma once

#include "kernels/gpu/few_rows.h"

namespace longspec::kernels::gpu {

template <typename Units, int kBlockRows>
struct ManyRows {
  using Activations = typename Units::Activations;
  using Args = QuantizedProduct<Activations>;
  static constexpr int kGroups = 4, kRows = kBlockRows, kTiles = 4;  // tiles of 8 rows: a warp's
  static constexpr int kWarps = kGroups * (kRows / (8 * kTiles)), kThreads = kWarps * kWarp;
  static constexpr int kMinBlocks = 128 / kRows;  // on a multiprocessor
  static constexpr int kStages = 2;
  static constexpr int kUnits = kSuperBlock / Units::kValues;  // of a stage
  using Bytes = PartBytes<Units::kFormat, Units::kBlocks>;
  static constexpr size_t kGroupBytes = kUnits * Bytes::kAll;
  static constexpr size_t kRowBytes = kUnits * sizeof(Activations) + 16;  // banks of rows differ
  static constexpr size_t kStageBytes = kGroups * kGroupBytes + kRows * kRowBytes;

  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv(a.n_groups, kGroups),
            .height = CeilDiv(a.n_rows, kRows),
            .shared_bytes = kStages * kStageBytes};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int warp = cta.thread() / kWarp, group = warp % kGroups, first_row = warp / kGroups * (8 * kTiles);
    const Lane lane = LaneOf(cta.thread());
    float acc[kTiles][4] = {};
    Fetch(cta, a, 0, cta.Shared());
    for (int first = 0, stage = 0; first < a.n_units; first += kUnits, ++stage) {
      std::byte* shared = cta.Shared() + stage % kStages * kStageBytes;
      cta.template WaitCopies<0>();
      cta.Sync();  // all copies have come, and the other stage has been read
      if (first + kUnits < a.n_units)
        Fetch(cta, a, first + kUnits, cta.Shared() + (stage + 1) % kStages * kStageBytes);
      const GroupParts<Units::kFormat, Units::kBlocks, true> parts(shared + group * kGroupBytes, kUnits);
      const std::byte* x = shared + kGroups * kGroupBytes + first_row * kRowBytes;
      const auto row = [&](int r) { return reinterpret_cast<const Activations*>(x + r * kRowBytes); };
      const Activations* rows[kTiles][3];
      LONGSPEC_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        rows[tile][0] = row(8 * tile + lane.g);
        rows[tile][1] = row(8 * tile + 2 * lane.j);
        rows[tile][2] = row(8 * tile + 2 * lane.j + 1);
      }
      const int n = a.n_units - first < kUnits ? a.n_units - first : kUnits;
      LONGSPEC_NO_UNROLL
      for (int unit = 0; unit < n; ++unit) {
        float t[kTiles][4];
        Units::template Terms<kTiles>(cta, parts, unit, lane, rows, t);
        LONGSPEC_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          LONGSPEC_UNROLL
          for (int e = 0; e < 4; ++e) {
            acc[tile][e] = Units::template Next<Cta>(acc[tile][e], t[tile][e], parts, unit, OutputOf(lane, e),
                                                     rows[tile][1 + e % 2]);
          }
        }
      }
    }
    const int64_t out0 = (static_cast<int64_t>(cta.block()) * kGroups + group) * kRowGroup;
    const int row0 = cta.block_y() * kRows + first_row;
    LONGSPEC_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      LONGSPEC_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int64_t out = out0 + OutputOf(lane, e);
        const int r = row0 + 8 * tile + RowOf(lane, e);
        if (out >= a.n_out || r >= a.n_rows) continue;
        float& y = a.y[r * a.y_stride + out];
        y = a.add ? Cta::Add(y, acc[tile][e]) : acc[tile][e];
      }
    }
  }

 private:
  // Begins to copy units [first, first + kUnits), or those that there are. Groups and rows past the last are
  // the last again: what is computed of them is dropped.
  template <class Cta>
  static LONGSPEC_GPU void Fetch(const Cta& cta, const Args& a, int first, std::byte* to) {
    const int n = a.n_units - first < kUnits ? a.n_units - first : kUnits;
    LONGSPEC_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      const int group = cta.block() * kGroups + i < a.n_groups ? cta.block() * kGroups + i : a.n_groups - 1;
      const GroupParts<Units::kFormat, Units::kBlocks, false> from(
          a.w + static_cast<size_t>(group) * a.group_bytes, a.n_units);
      std::byte* at = to + i * kGroupBytes;
      at = FetchPart(cta, from.quants, Bytes::kQuants, first, n, at);
      at = FetchPart(cta, from.scales, Bytes::kNumbers, first, n, at);
      at = FetchPart(cta, from.minima, Bytes::kMinima, first, n, at);
      at = FetchPart(cta, from.factors, Bytes::kFactors, first, n, at);
      FetchPart(cta, from.min_factors, Bytes::kMinFactors, first, n, at);
    }
    to += kGroups * kGroupBytes;
    const int n_pieces = n * static_cast<int>(sizeof(Activations) / 16);
    for (int i = cta.thread(); i < kRows * n_pieces; i += kThreads) {
      const int r = i / n_pieces, piece = i % n_pieces, row = cta.block_y() * kRows + r;
      const Activations* from =
          a.x + static_cast<int64_t>(row < a.n_rows ? row : a.n_rows - 1) * a.n_units + first;
      cta.CopyAsync(to + r * kRowBytes + 16 * piece, reinterpret_cast<const std::byte*>(from) + 16 * piece);
    }
    cta.CommitCopies();
  }
  template <class Cta>
  static LONGSPEC_GPU std::byte* FetchPart(const Cta& cta, const std::byte* from, size_t unit_bytes,
                                           int first, int n, std::byte* to) {
    const int n_pieces = n * static_cast<int>(unit_bytes / 16);
    for (int i = cta.thread(); i < n_pieces; i += kThreads)
      cta.CopyAsync(to + 16 * i, from + first * unit_bytes + 16 * i);
    return to + kUnits * unit_bytes;
  }
};

}  // namespace longspec::kernels::gpu
