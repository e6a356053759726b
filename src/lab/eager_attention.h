// SPDX-License-Identifier: Apache-2.0
//
// Attention as eager implementations do it ("vanilla" in the papers): in each
// layer, before anything is multiplied, all keys and values that a pass may see are copied to one place, each
// KV head as often as it has query heads (torch.cat and repeat_kv of transformers). That is 1 + 2 g times the
// memory traffic of the keys and values, g being query heads per KV head, and it grows with every step. What
// is computed of the copy is AttentionPlan's, so the bits are its bits.
//
// For measuring beside: nobody else should want it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention.h"

namespace longspec {

class EagerAttention final : public Attention {
 public:
  EagerAttention(const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads);

  void Plan(std::span<const AttentionSegment> segments) override;
  int Place(int row) const override { return of_copy_.Place(row); }
  void Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) override;

  size_t bytes() const { return copy_.size() + q_.size() + of_copy_.bytes(); }
  size_t copy_bytes() const { return copy_.size(); }  // what of it is the copy
  // Of the copy of a sequence of so many positions, at most. `layout`: its cache's.
  static size_t CopyBytes(const AttentionShape& shape, const KvLayout& layout, int n_positions);

 private:
  // A chunk that is copied; `from`: its first layer.
  struct Chunk {
    const std::byte* from;
    KvLayout layout;
    size_t base;  // which of the bases its copy is
    size_t at;    // where that lies in copy_
  };

  size_t Add(const KvSpan& span, int first, int end, const AttentionSegment* ring);
  KvSpan SpanOf(const KvSpan& span, size_t base) const;
  void CopyHead(const Chunk& chunk, int layer, int head);

  const AttentionShape shape_;
  AttentionPlan of_copy_;
  std::vector<Chunk> chunks_;
  std::vector<const std::byte*> bases_;  // of copies; null: nobody reads that chunk
  size_t n_bases_ = 0;
  std::vector<AttentionSegment> segments_;
  size_t copy_bytes_ = 0;
  AlignedBuffer copy_, q_;
};

}  // namespace longspec
