// SPDX-License-Identifier: Apache-2.0
//
// Products of quantised weights for few rows: a block of threads is one group of 16 outputs and kTiles times
// 8 rows. Its warps share the units (super-blocks, or blocks of 32) and leave their terms in shared memory,
// from which one thread for each sum adds them in ascending order. So every weight is read once, with many
// reads under way, and the order is the reference's.
#pragma once

#include "kernels/gpu/units_q8.h"
#include "kernels/gpu/units_q8k.h"

namespace longspec::kernels::gpu {

// Of all bodies of quantised products.
template <typename Activations>
struct QuantizedProduct {
  const std::byte* w;  // of the first group
  size_t group_bytes;
  int64_t n_out;  // from there on
  int n_groups, n_units;
  const Activations* x;  // (n_rows, n_units)
  float* y;              // of the first group's outputs
  int64_t y_stride;
  int n_rows;
  bool add;
  bool operator==(const QuantizedProduct&) const = default;
};

template <typename Units, int kTiles>
struct FewRows {
  using Args = QuantizedProduct<typename Units::Activations>;
  static constexpr int kWarps = 8, kThreads = kWarps * kWarp;
  static constexpr int kMinBlocks = kTiles == 1 ? 3 : 2;
  static constexpr int kStage = 2 * kWarps;  // units between two barriers
  static constexpr int kRows = 8 * kTiles;   // of a block
  static constexpr int kRowStride = 20;      // of 16 outputs in shared memory: banks of rows differ
  static constexpr int kUnit = kRows * kRowStride;
  static constexpr int kSums = kRows * kRowGroup;
  static constexpr int kOwned = (kSums + kThreads - 1) / kThreads;  // by one thread

  static Grid GridOf(const Args& a) {
    return {.width = a.n_groups,
            .height = CeilDiv(a.n_rows, kRows),
            .shared_bytes = size_t{2} * kStage * kUnit * sizeof(float)};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    using Parts = GroupParts<Units::kFormat, Units::kBlocks, false>;
    const Parts parts(a.w + static_cast<size_t>(cta.block()) * a.group_bytes, a.n_units);
    const int row0 = cta.block_y() * kRows, warp = cta.thread() / kWarp;
    const Lane lane = LaneOf(cta.thread());
    const auto row = [&](int r) {  // those past the last are computed, and dropped
      return a.x + static_cast<int64_t>(row0 + r < a.n_rows ? row0 + r : a.n_rows - 1) * a.n_units;
    };
    const typename Units::Activations* rows[kTiles][3];
    LONGSPEC_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      rows[tile][0] = row(8 * tile + lane.g);
      rows[tile][1] = row(8 * tile + 2 * lane.j);
      rows[tile][2] = row(8 * tile + 2 * lane.j + 1);
    }
    auto* terms = reinterpret_cast<float*>(cta.Shared());
    float acc[kOwned] = {};
    for (int first = 0; first < a.n_units; first += kStage) {
      for (int i = warp; i < kStage && first + i < a.n_units; i += kWarps) {
        float t[kTiles][4];
        Units::template Terms<kTiles>(cta, parts, first + i, lane, rows, t);
        LONGSPEC_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          LONGSPEC_UNROLL
          for (int e = 0; e < 4; ++e)
            terms[i * kUnit + (8 * tile + RowOf(lane, e)) * kRowStride + OutputOf(lane, e)] = t[tile][e];
        }
      }
      cta.Sync();
      const int n = a.n_units - first < kStage ? a.n_units - first : kStage;
      LONGSPEC_UNROLL
      for (int own = 0; own < kOwned; ++own) {
        const int sum = own * kThreads + cta.thread();
        if (sum >= kSums) break;
        const float* t = terms + sum / kRowGroup * kRowStride + sum % kRowGroup;
        const auto* x = row(sum / kRowGroup);
        for (int i = 0; i < n; ++i)
          acc[own] = Units::template Next<Cta>(acc[own], t[i * kUnit], parts, first + i, sum % kRowGroup, x);
      }
      // The next stage is written elsewhere, and the one after it behind another barrier.
      terms = reinterpret_cast<float*>(cta.Shared()) + (first / kStage + 1) % 2 * kStage * kUnit;
    }
    LONGSPEC_UNROLL
    for (int own = 0; own < kOwned; ++own) {
      const int sum = own * kThreads + cta.thread(), r = row0 + sum / kRowGroup;
      const int64_t out = static_cast<int64_t>(cta.block()) * kRowGroup + sum % kRowGroup;
      if (sum >= kSums || r >= a.n_rows || out >= a.n_out) continue;
      float& y = a.y[r * a.y_stride + out];
      y = a.add ? Cta::Add(y, acc[own]) : acc[own];
    }
  }
};

}  // namespace longspec::kernels::gpu
