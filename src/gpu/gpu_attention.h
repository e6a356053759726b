// SPDX-License-Identifier: Apache-2.0
//
// Attention of a pass on a card: works of one chunk each (attention/attention_work.h) as lists in its memory,
// for kernels/gpu/fused_attention.h, and which states of a row merge_states.h merges. Rows whose states do
// not fit into memory together are done one part after the other.
//
// What is launched for few rows stays the same for many passes (repeated_launches.h): lists are as long as
// some rounder number of items, states and chunks of rows would need, and what that adds is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "gpu/gpu_memory.h"
#include "kernels/gpu/fused_attention.h"
#include "kernels/gpu/launch_list.h"
#include "longspec/status.h"

namespace longspec {

// Whether a card's attention has kernels for these heads and this cache; the message names what it lacks.
Status CheckGpuAttention(const AttentionShape& shape, const KvLayout& layout);

class GpuAttention final : public Attention {
 public:
  // Of the states of all KV heads of a part.
  static constexpr size_t kStateBytes = size_t{64} << 20;

  // Passes of more rows come once: their lists are not rounded.
  static constexpr int kFewRows = 16;

  // `states`: for whatever attention is computed at a time, `launches`: where Run adds its own; both
  // borrowed. REQUIRES: CheckGpuAttention.
  GpuAttention(Runtime& card, const AttentionShape& shape, GpuBuffer* states,
               kernels::gpu::LaunchList* launches, size_t state_bytes = kStateBytes);

  // Throws std::bad_alloc. REQUIRES: all segments' layouts are equal.
  void Plan(std::span<const AttentionSegment> segments) override;
  int Place(int row) const override { return place_[static_cast<size_t>(row)]; }
  // Adds its launches; q and out are the card's. The worker is that of a team of one.
  void Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) override;

  int n_parts() const { return static_cast<int>(parts_.size()); }

 private:
  // Rows [row_begin, row_end), by place and as the segments count: both count on from part to part.
  struct Part {
    int row_begin, row_end, item_begin, item_end, n_states;
  };
  // Of lists_ and tails_.
  struct Places {
    size_t rows, part_begins, out_rows, items, parts, slots;
  };

  static constexpr size_t kNoTail = SIZE_MAX;

  void ChooseEntries(std::span<const AttentionSegment> segments);
  void PlanPart(std::span<const AttentionSegment> segments, int row_begin);
  void RoundLists();
  size_t row_states() const;  // floats of one row's states of one KV head

  Runtime& card_;
  const AttentionShape shape_;
  GpuBuffer* const states_;
  kernels::gpu::LaunchList* const launches_;
  const size_t most_states_;  // rows of states of a part

  KvLayout layout_;
  int entries_ = 0;
  std::vector<int> place_;
  std::vector<Part> parts_;
  GpuLists lists_, tails_;
  Places at_ = {};
  // As they are brought.
  std::vector<kernels::gpu::AttentionItem> items_;
  std::vector<size_t> item_tails_;  // of each item: where in tails_ its segment's chunks are, or kNoTail
  std::vector<kernels::gpu::AttentionRow> rows_;
  std::vector<int32_t> slots_, state_numbers_, state_begins_, out_rows_;
};

}  // namespace longspec
