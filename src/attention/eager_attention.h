// SPDX-License-Identifier: Apache-2.0
//
// Attention as eager implementations do it ("vanilla" in the papers; research: baselines.md 1.1): in each
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
  // Of the copy of a sequence of so many positions. `layout`: its cache's.
  static size_t CopyBytes(const AttentionShape& shape, const KvLayout& layout, int n_positions);

 private:
  // A chunk that is copied; `from`: its first layer.
  struct Chunk {
    const std::byte* from;
    KvLayout layout;
    size_t at;  // of copy_
  };
  struct Range {
    size_t begin, end;  // of chunks_
  };

  Range Add(const KvSpan& span, int n_slots, const AttentionSegment* ring);
  KvSpan SpanOf(const KvSpan& span, const Range& range) const;
  void CopyHead(const Chunk& chunk, int layer, int head);

  const AttentionShape shape_;
  AttentionPlan of_copy_;
  std::vector<Chunk> chunks_;
  std::vector<const std::byte*> bases_;  // of their copies
  std::vector<AttentionSegment> segments_;
  size_t copy_bytes_ = 0;
  AlignedBuffer copy_, q_;
};

}  // namespace longspec
