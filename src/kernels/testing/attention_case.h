// SPDX-License-Identifier: Apache-2.0
//
// Rows that attend to chunks and tails, what the reference's operations make of that, and the same by
// gpu/fused_attention.h and gpu/merge_states.h on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/gpu/fused_attention.h"
#include "kernels/gpu/merge_states.h"
#include "kernels/ops.h"

namespace longspec::kernels::testing {

// What every row of a case sees: [begin, end), and n_tail slots.
struct SeenByRow {
  int begin = 0, end = 0, n_tail = 0;
};

class AttentionCase {
 public:
  struct Shape {
    KvType k_type = KvType::kF16, v_type = KvType::kF16;
    int head_dim = 64, n_kv_head = 2, group = 2;
  };
  // Rows with tails end at the same position, and none ends after it. An item has at most `item_rows` rows.
  AttentionCase(const Shape& shape, const std::vector<SeenByRow>& rows, int item_rows, uint32_t seed);

  struct Result {
    std::vector<float> states;  // of parts, (n_kv_head, n_states, group, kStateHeader + head_dim)
    std::vector<float> out;     // (n_rows, n_kv_head * group, head_dim)
  };
  Result Reference() const;

  template <typename Device, KvType K, KvType V, int kDims, int kEntries, int kRing>
  Result On() const;

 private:
  struct Item {
    int chunk;  // and its place in chunks_
    bool with_tails;
    int n_stored, row_begin, n_rows, state;
  };

  static constexpr int kLayers = 2, kLayer = 1, kTailSlots = 300;

  size_t StateFloats() const { return static_cast<size_t>(kStateHeader + shape_.head_dim); }
  size_t AllStates() const {
    return Size(shape_.n_kv_head) * Size(n_states_) * Size(shape_.group) * StateFloats();
  }
  size_t OutFloats() const { return rows_.size() * Size(shape_.n_kv_head * shape_.group * shape_.head_dim); }
  static size_t Size(int64_t n) { return static_cast<size_t>(n); }
  // Sees keys [low, count) of the item's chunk.
  struct Seen {
    int low, count;
  };
  Seen SeenBy(const gpu::AttentionRow& row, const Item& item) const;
  const std::byte* HeadOf(size_t chunk, int head, bool values) const;
  void AddState(const Item& item, int row, int head, int of_group, float* state) const;

  Shape shape_;
  std::vector<gpu::AttentionRow> rows_;
  std::vector<int> slots_;
  std::vector<Item> items_;
  std::vector<int> parts_, part_begins_;
  int n_states_ = 0;
  size_t k_head_bytes_, v_head_bytes_, layer_bytes_;
  size_t n_chunks_ = 0;  // stored; those of tails follow
  std::vector<std::byte> chunks_;
  std::vector<float> q_;
  float scale_ = 0.0883F;
};

template <typename Device, KvType K, KvType V, int kDims, int kEntries, int kRing>
AttentionCase::Result AttentionCase::On() const {
  const size_t chunk_bytes = kLayers * layer_bytes_;
  const typename Device::template In<std::byte> chunks(chunks_.data(), chunks_.size());
  std::vector<const std::byte*> tails;
  for (size_t i = n_chunks_; i * chunk_bytes < chunks_.size(); ++i)
    tails.push_back(chunks.get() + i * chunk_bytes);
  const typename Device::template In<const std::byte*> tail_list(tails.data(), tails.size());
  std::vector<gpu::AttentionItem> items;
  for (const Item& item : items_) {
    items.push_back({.chunk = chunks.get() + Size(item.chunk) * chunk_bytes,
                     .tails = item.with_tails ? tail_list.get() : nullptr,
                     .first = item.chunk * kChunk,
                     .n_stored = item.n_stored,
                     .row_begin = item.row_begin,
                     .n_rows = item.n_rows,
                     .state = item.state});
  }
  const typename Device::template In<gpu::AttentionItem> item_list(items.data(), items.size());
  const typename Device::template In<gpu::AttentionRow> rows(rows_.data(), rows_.size());
  const typename Device::template In<int> slots(slots_.data(), slots_.size());
  const typename Device::template In<int> parts(parts_.data(), parts_.size());
  const typename Device::template In<int> part_begins(part_begins_.data(), part_begins_.size());
  const typename Device::template In<float> q(q_.data(), q_.size());
  Result result{std::vector<float>(AllStates(), -3.0F), std::vector<float>(OutFloats(), -4.0F)};
  {
    const typename Device::template InOut<float> states(result.states.data(), result.states.size());
    const typename Device::template InOut<float> out(result.out.data(), result.out.size());
    Device::template Launch<gpu::FusedAttention<K, V, kDims, kEntries, kRing>>(
        gpu::AttentionArgs{.items = item_list.get(),
                           .rows = rows.get(),
                           .slots = slots.get(),
                           .q = q.get(),
                           .states = states.get(),
                           .layer_offset = static_cast<int64_t>(kLayer * layer_bytes_),
                           .n_items = static_cast<int>(items.size()),
                           .n_rows = static_cast<int>(rows_.size()),
                           .n_states = n_states_,
                           .n_kv_head = shape_.n_kv_head,
                           .group = shape_.group,
                           .head_dim = shape_.head_dim,
                           .scale = scale_});
    Device::template Launch<gpu::MergeStates<kDims>>(
        typename gpu::MergeStates<kDims>::Args{.rows = rows.get(),
                                               .states = states.get(),
                                               .parts = parts.get(),
                                               .part_begins = part_begins.get(),
                                               .out_rows = nullptr,
                                               .out = out.get(),
                                               .n_rows = static_cast<int>(rows_.size()),
                                               .n_states = n_states_,
                                               .n_kv_head = shape_.n_kv_head,
                                               .group = shape_.group,
                                               .head_dim = shape_.head_dim});
  }
  return result;
}

}  // namespace longspec::kernels::testing
