// SPDX-License-Identifier: Apache-2.0
//
// Attention of all rows of a forward pass, in the canonical order (docs/arithmetic.md). A row sees a range of
// stored positions and then a tail of slots, at the positions after them: its ancestors in a tree. Softmax
// goes chunk by chunk of 256 absolute positions, whose states are merged in a fixed order (state_merging.h),
// so a row's bits depend on what it sees and on nothing else: not on the rows beside it, the number of
// sequences in the pass, or the threads. There is no (rows x context) mask.
//
// The work of a layer is cut into items of (KV head, chunk, rows that see it). A chunk that several sequences
// hold is read once for all their rows. Partial states of rows and chunks are merged after a barrier. Long
// chains of rows (a prompt) are cut into tiles that go through all their chunks and merge as they go.
//
// Plan once per forward pass, Run once per layer. Plan allocates; Run does not. A plan is used by one team at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention_work.h"
#include "attention/kv_span.h"
#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "kernels/ops.h"

namespace longspec {

struct AttentionShape {
  int n_head = 0;
  int n_kv_head = 0;
  int head_dim = 0;    // a multiple of 16
  float scale = 1.0F;  // on the scores, 1 / sqrt(head_dim) as a rule

  int group() const { return n_head / n_kv_head; }  // query heads per KV head
};

// Plan once per forward pass, Run once per layer: below. Implementations give the same bits.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual void Plan(std::span<const AttentionSegment> segments) = 0;
  virtual int Place(int row) const = 0;
  virtual void Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) = 0;
};

class AttentionPlan final : public Attention, private AttentionWork {
 public:
  // Partial states of all KV heads: what does not fit into so many bytes is done in several waves.
  static constexpr size_t kStateBytes = 8 << 20;

  // `fixed_state_bytes`: that many bytes of states, whatever the context; 0: as many as a plan needs, up to
  // kStateBytes.
  AttentionPlan(const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads,
                size_t fixed_state_bytes = 0)
      : AttentionWork(CutOf(shape, fixed_state_bytes > 0 ? fixed_state_bytes : kStateBytes)),
        kernels_(kernels),
        shape_(shape),
        fixed_state_bytes_(fixed_state_bytes),
        scratch_(static_cast<size_t>(n_threads)) {}

  // What segments view (chunks, rows, tails) must stay until the last Run. Spans are those of layer 0; rows
  // of all segments are counted through, in their order.
  void Plan(std::span<const AttentionSegment> segments) override;

  int n_rows() const { return static_cast<int>(rows_.size()); }
  // Where row `row` lies in q: rows of sequences that share chunks lie together.
  int Place(int row) const override { return PlaceOf(row); }

  // Called by every worker after a barrier. q: (n_kv_head, n_rows, group, head_dim) f32, rows in the order of
  // Place; out: (n_rows, n_head * head_dim) f32, in the order of the segments, zero for a row that sees
  // nothing. The keys and values are there already. `layer`: of the spans' chunks. Contains barriers and uses
  // Worker::Claim before the first; on return `out` is whole after the caller's next barrier.
  void Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) override;

  // Of a layer: what is claimed by threads, and how often their partial states are merged.
  int n_items() const { return static_cast<int>(works_.size()) * shape_.n_kv_head; }
  int n_waves() const { return static_cast<int>(waves_.size()); }

  size_t bytes() const;  // memory held now
  // What it will hold at most, whatever the context, for passes of so many rows and as many slots in tails.
  static size_t MostBytes(const AttentionShape& shape, int n_threads, int n_rows);

 private:
  struct Scratch {
    AlignedBuffer floats;  // scores, scores of tails, states of a tile
    std::vector<int> lows, counts;
    std::vector<const std::byte*> values;
  };
  struct Tile;

  static Cut CutOf(const AttentionShape& shape, size_t state_bytes);
  void ReserveMemory();

  KvSpan StoredOf(const Group& group, int layer) const;
  void CountKeys(const Tile& tile, int chunk) const;
  void AttendChunk(const Tile& tile, int chunk, float* states) const;
  void AttendStored(const Tile& tile, int chunk, float* states) const;
  void AttendTail(const Tile& tile, int chunk, float* states) const;
  void AttendTile(const Tile& tile, float* states, float* out) const;
  kernels::Upcoming KeysOf(int item, int layer, const Wave& wave) const;
  void MergeRow(int kv_head, int place, const Wave& wave, bool last, float* out);

  size_t row_states() const {  // floats of one row's states of one KV head
    return static_cast<size_t>(shape_.group()) *
           (kernels::kStateHeader + static_cast<size_t>(shape_.head_dim));
  }
  size_t state_floats() const { return kernels::kStateHeader + static_cast<size_t>(shape_.head_dim); }
  float* State(int kv_head, int state) {
    return states_.as<float>() +
           (static_cast<size_t>(kv_head) * n_states_ + static_cast<size_t>(state)) * row_states();
  }

  const kernels::KernelTable* kernels_;
  AttentionShape shape_;
  size_t fixed_state_bytes_;

  AlignedBuffer states_;          // (n_kv_head, n_states, group, state)
  AlignedBuffer running_;         // (n_kv_head, n_rows, 2, group, state), if there are several waves
  std::vector<Scratch> scratch_;  // one per worker
  int most_tail_chunks_ = 0;
  size_t scores_floats_ = 0, tail_floats_ = 0;
};

}  // namespace longspec
