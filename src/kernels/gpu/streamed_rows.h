// SPDX-License-Identifier: Apache-2.0
//
// Products of quantised weights for few rows, as a stream: each warp of a block of threads copies the units
// that it will multiply to shared memory, kDepth of them under way at a time, and goes on to the next groups
// without a pause. Terms are summed as in few_rows.h.
#pragma once

#include "kernels/gpu/few_rows.h"

namespace longspec::kernels::gpu {

// kMostRows: 2 or 8, all rows there are.
template <typename Units, int kMostRows>
struct StreamedRows {
  using Activations = typename Units::Activations;
  using Args = QuantizedProduct<Activations>;
  static constexpr int kWarps = 4, kThreads = kWarps * kWarp;
  static constexpr int kDepth = kMostRows <= 2 ? 4 : 3;
  static constexpr int kMostBlocks = 132 * 4;
  static constexpr int kInSlot = Units::kValues == kSuperBlock ? 1 : 8;  // units that come together
  static constexpr int kStage = 4 * kWarps;                              // slots between two barriers
  using Bytes = PartBytes<Units::kFormat, Units::kBlocks>;
  static constexpr size_t kRowBytes = kInSlot * sizeof(Activations) + 16;  // banks of rows differ
  static constexpr size_t kWeightBytes = kInSlot * Bytes::kAll;
  static constexpr size_t kSlotBytes = kWeightBytes + kMostRows * kRowBytes;
  static constexpr int kRowStride = 20;
  static constexpr int kUnit = kMostRows * kRowStride;
  static constexpr int kTermsOfStage = kStage * kInSlot * kUnit;
  static constexpr size_t kRing = kWarps * kDepth * kSlotBytes;

  static Grid GridOf(const Args& a) {
    return {.width = a.n_groups < kMostBlocks ? a.n_groups : kMostBlocks,
            .height = 1,
            .shared_bytes = kRing + size_t{2} * kTermsOfStage * sizeof(float)};
  }

  // Which slot of which group.
  struct Place {
    int group, slot;
  };

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int warp = cta.thread() / kWarp, n_slots = (a.n_units + kInSlot - 1) / kInSlot;
    const Lane lane = LaneOf(cta.thread());
    std::byte* ring = cta.Shared() + static_cast<size_t>(warp) * kDepth * kSlotBytes;
    auto* all_terms = reinterpret_cast<float*>(cta.Shared() + kRing);
    const auto next = [&](Place at) -> Place {
      at.slot += kWarps;
      if (at.slot < n_slots) return at;
      return {at.group + cta.n_blocks(), warp};
    };
    Place ahead = {cta.block(), warp};
    if (warp >= n_slots) ahead.group = a.n_groups;  // nothing ever
    for (int i = 0; i < kDepth - 1; ++i) {
      Fetch(cta, a, ahead, ring + i * kSlotBytes);
      ahead = next(ahead);
    }
    int at = 0, stage = 0;  // the slot of the ring that comes next
    const int sum_row = cta.thread() / kRowGroup, sum_out = cta.thread() % kRowGroup;
    for (int group = cta.block(); group < a.n_groups; group += cta.n_blocks()) {
      float acc = 0.0F;
      const GroupParts<Units::kFormat, Units::kBlocks, false> of_group(
          a.w + static_cast<size_t>(group) * a.group_bytes, a.n_units);
      for (int first = 0; first < n_slots; first += kStage, ++stage) {
        float* terms = all_terms + stage % 2 * kTermsOfStage;
        for (int slot = first + warp; slot < first + kStage && slot < n_slots; slot += kWarps) {
          cta.template WaitCopies<kDepth - 2>();
          cta.SyncWarp();  // the slot has come, and the one before it has been read
          Fetch(cta, a, ahead, ring + (at + kDepth - 1) % kDepth * kSlotBytes);
          ahead = next(ahead);
          Multiply(cta, a, ring + at * kSlotBytes, lane, slot * kInSlot,
                   terms + (slot - first) * kInSlot * kUnit);
          at = (at + 1) % kDepth;
        }
        cta.Sync();
        if (sum_row >= kMostRows || sum_row >= a.n_rows) continue;
        const int begin = first * kInSlot, most = kStage * kInSlot;
        const int n = a.n_units - begin < most ? a.n_units - begin : most;
        const float* t = terms + sum_row * kRowStride + sum_out;
        const Activations* x = a.x + static_cast<int64_t>(sum_row) * a.n_units;
        for (int i = 0; i < n; ++i)
          acc = Units::template Next<Cta>(acc, t[i * kUnit], of_group, begin + i, sum_out, x);
      }
      const int64_t out = static_cast<int64_t>(group) * kRowGroup + sum_out;
      if (sum_row >= kMostRows || sum_row >= a.n_rows || out >= a.n_out) continue;
      float& y = a.y[sum_row * a.y_stride + out];
      y = a.add ? Cta::Add(y, acc) : acc;
    }
  }

 private:
  template <class Cta>
  static LONGSPEC_GPU void Multiply(const Cta& cta, const Args& a, const std::byte* slot, Lane lane,
                                    int first, float* terms) {
    const GroupParts<Units::kFormat, Units::kBlocks, true> parts(slot, kInSlot);
    const auto row = [&](int r) {
      return reinterpret_cast<const Activations*>(slot + kWeightBytes +
                                                  (r < a.n_rows ? r : a.n_rows - 1) * kRowBytes);
    };
    const Activations* rows[1][3] = {{row(lane.g), row(2 * lane.j), row(2 * lane.j + 1)}};
    const int n = a.n_units - first < kInSlot ? a.n_units - first : kInSlot;
    LONGSPEC_NO_UNROLL
    for (int unit = 0; unit < n; ++unit) {
      float t[1][4];
      Units::template Terms<1>(cta, parts, unit, lane, rows, t);
      LONGSPEC_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (RowOf(lane, e) < kMostRows)
          terms[unit * kUnit + RowOf(lane, e) * kRowStride + OutputOf(lane, e)] = t[0][e];
      }
    }
  }

  // A group of copies, of nothing past the last group.
  template <class Cta>
  static LONGSPEC_GPU void Fetch(const Cta& cta, const Args& a, Place at, std::byte* to) {
    if (at.group < a.n_groups) {
      const int first = at.slot * kInSlot, n = a.n_units - first < kInSlot ? a.n_units - first : kInSlot;
      const GroupParts<Units::kFormat, Units::kBlocks, false> from(
          a.w + static_cast<size_t>(at.group) * a.group_bytes, a.n_units);
      to = FetchPart(cta, from.quants, Bytes::kQuants, first, n, to);
      to = FetchPart(cta, from.scales, Bytes::kNumbers, first, n, to);
      to = FetchPart(cta, from.minima, Bytes::kMinima, first, n, to);
      to = FetchPart(cta, from.factors, Bytes::kFactors, first, n, to);
      to = FetchPart(cta, from.min_factors, Bytes::kMinFactors, first, n, to);
      const int n_pieces = n * static_cast<int>(sizeof(Activations) / 16);
      for (int r = 0; r < a.n_rows; ++r) {
        const auto* x = reinterpret_cast<const std::byte*>(a.x + static_cast<int64_t>(r) * a.n_units + first);
        for (int i = cta.thread() % kWarp; i < n_pieces; i += kWarp)
          cta.CopyAsync(to + r * kRowBytes + 16 * i, x + 16 * i);
      }
    }
    cta.CommitCopies();
  }
  template <class Cta>
  static LONGSPEC_GPU std::byte* FetchPart(const Cta& cta, const std::byte* from, size_t unit_bytes,
                                           int first, int n, std::byte* to) {
    const int n_pieces = n * static_cast<int>(unit_bytes / 16);
    for (int i = cta.thread() % kWarp; i < n_pieces; i += kWarp)
      cta.CopyAsync(to + 16 * i, from + first * unit_bytes + 16 * i);
    return to + kInSlot * unit_bytes;
  }
};

}  // namespace longspec::kernels::gpu
