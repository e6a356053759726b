// SPDX-License-Identifier: Apache-2.0
//
// Attention of a pass on a card: works of one chunk each (attention/attention_work.h) as lists in its memory,
// for kernels/gpu/fused_attention.h, and which states of a row merge_states.h merges. Rows whose states do
// not fit into memory together are done one part after the other.
//
// Chunks in host memory that the pass only reads are fetched ahead (chunk_fetches.h): works of these are
// launched once they are there, behind those that read their chunks where they lie.
//
// What is launched for few rows stays the same for many passes (repeated_launches.h): lists are as long as
// some rounder number of items, states and chunks of rows would need, and what that adds is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "gpu/chunk_fetches.h"
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

  // `states`: for whatever attention is computed at a time, `launches`: where Run adds its own, `fetches`: of
  // the pass; all borrowed. REQUIRES: CheckGpuAttention.
  GpuAttention(Runtime& card, const AttentionShape& shape, GpuBuffer* states,
               kernels::gpu::LaunchList* launches, ChunkFetches* fetches, size_t state_bytes = kStateBytes);

  // Throws std::bad_alloc. REQUIRES: all segments' layouts are equal.
  void Plan(std::span<const AttentionSegment> segments) override;
  int Place(int row) const override { return place_[static_cast<size_t>(row)]; }
  // What Run of this layer reads of what is fetched. Layers are added in the order in which they are run.
  void AddFetches(int layer) const;
  // Adds its launches; q and out are the card's. The worker is that of a team of one.
  void Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) override;

  int n_parts() const { return static_cast<int>(parts_.size()); }

 private:
  // Rows [row_begin, row_end), by place and as the segments count: both count on from part to part. Of
  // fetches [fetch_begin, fetch_end) of fetches_.
  struct Part {
    int row_begin, row_end, item_begin, item_end, fetch_begin, fetch_end, n_states;
  };
  // Chunks that come to a place together, and the items that read them there.
  struct Fetch {
    int chunk_begin, chunk_end, item_begin, item_end;
  };
  // Of lists_ and tails_.
  struct Places {
    size_t rows, part_begins, out_rows, items, fetched_items, fetched_chunks, parts, slots;
  };

  static constexpr size_t kNoTail = SIZE_MAX;

  void ChooseEntries(std::span<const AttentionSegment> segments);
  void PlanPart(std::span<const AttentionSegment> segments, int row_begin);
  // Items of a part, each with the number of its chunk among these.
  void PlanFetches(std::span<const std::byte* const> chunks,
                   std::vector<std::pair<int, kernels::gpu::AttentionItem>> items);
  // Whether this chunk of a segment is fetched, if it is read without a tail.
  bool IsFetched(const AttentionSegment& segment, const std::byte* chunk) const;
  void RoundLists();
  void Attend(const kernels::gpu::AttentionArgs& args);
  size_t row_states() const;  // floats of one row's states of one KV head

  Runtime& card_;
  const AttentionShape shape_;
  GpuBuffer* const states_;
  kernels::gpu::LaunchList* const launches_;
  ChunkFetches* const fetches_;
  const size_t most_states_;  // rows of states of a part

  KvLayout layout_;
  int entries_ = 0;
  std::vector<int> place_;
  std::vector<Part> parts_;
  std::vector<Fetch> fetched_;
  std::set<const std::byte*> written_;  // chunks that rows of the pass are stored in
  GpuLists lists_, tails_;
  Places at_ = {};
  // As they are brought.
  std::vector<kernels::gpu::AttentionItem> items_;
  std::vector<size_t> item_tails_;  // of each item: where in tails_ its segment's chunks are, or kNoTail
  std::vector<kernels::gpu::AttentionItem> fetched_items_;
  std::vector<const std::byte*> fetched_chunks_;
  std::vector<kernels::gpu::AttentionRow> rows_;
  std::vector<int32_t> slots_, state_numbers_, state_begins_, out_rows_;
};

}  // namespace longspec
