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

// What one row sees: stored positions [begin, end), then these slots, which are positions end, end + 1, ...
// If there is a tail, whole chunks below `end` and the tail's slots are all that is read.
struct RowView {
  int begin = 0, end = 0;
  std::span<const int32_t> tail = {};
};

// Rows whose keys lie in the same place: those of one sequence.
struct AttentionSegment {
  KvSpan stored;          // position p lies in chunk p / 256, counted round the ring if there is one
  int n_ring_chunks = 0;  // 0: no ring, all chunks are there
  KvSpan tail = {};       // what tails are slots of; may be `stored` itself
  int tail_begin = 0, tail_end = 0;  // the slots of it that tails may name
  std::span<const RowView> rows = {};

  // Where a chunk of stored positions lies.
  int PlaceOf(int chunk) const { return n_ring_chunks > 0 ? chunk % n_ring_chunks : chunk; }
};

// Plan once per forward pass, Run once per layer: below. Implementations give the same bits.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual void Plan(std::span<const AttentionSegment> segments) = 0;
  virtual int Place(int row) const = 0;
  virtual void Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) = 0;
};

class AttentionPlan final : public Attention {
 public:
  // Partial states of all KV heads: what does not fit into so many bytes is done in several waves.
  static constexpr size_t kStateBytes = 8 << 20;

  // `fixed_state_bytes`: that many bytes of states, whatever the context; 0: as many as a plan needs, up to
  // kStateBytes.
  AttentionPlan(const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads,
                size_t fixed_state_bytes = 0)
      : kernels_(kernels),
        shape_(shape),
        fixed_state_bytes_(fixed_state_bytes),
        scratch_(static_cast<size_t>(n_threads)) {}

  // What segments view (chunks, rows, tails) must stay until the last Run. Spans are those of layer 0; rows
  // of all segments are counted through, in their order.
  void Plan(std::span<const AttentionSegment> segments) override;

  int n_rows() const { return static_cast<int>(rows_.size()); }
  // Where row `row` lies in q: rows of sequences that share chunks lie together.
  int Place(int row) const override { return place_[static_cast<size_t>(row)]; }

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
  // Neighbouring rows of one segment that end at the same stored position, if any of them has a tail.
  struct Group {
    const AttentionSegment* segment;
    size_t layer_bytes;
    int row_begin, row_end;  // places
    int first_chunk;         // the first that a row sees
    int n_stored;            // chunks before this one are read where they lie
    int n_chunks;            // those, and the ones with tails
    bool by_chunk;
  };
  struct Row {
    int begin, end;       // stored positions
    const int32_t* tail;  // positions end, end + 1, ..., total - 1
    int total;
    int group, out;             // out: as the segments count
    int first_part, last_part;  // of parts_, -1: none
  };
  // Rows [row_begin, row_end), which see this chunk of group `group`; chunk -1: all chunks, merged.
  struct Work {
    int group, chunk, row_begin, row_end;
    int state;  // of states_: the place of its first row's state
  };
  struct Part {
    int state, next;  // next: of the same row, -1: none
  };
  // Works whose states fit into memory together.
  struct Wave {
    int work_begin, work_end, part_end;
  };
  struct Scratch {
    AlignedBuffer floats;  // scores, scores of tails, states of a tile
    std::vector<int> lows, counts;
    std::vector<const std::byte*> values;
  };
  struct Tile;

  void PlanGroups();
  void PlanRows();
  void PlanWorks();
  void AddWork(int group, int chunk, int row_begin, int row_end);
  void ReserveMemory();

  const std::byte* ChunkOf(const Group& group, int chunk) const;
  KvSpan StoredOf(const Group& group, int layer) const;
  bool IsStored(const Group& group, int chunk) const { return chunk < group.n_stored; }
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

  std::vector<AttentionSegment> segments_;
  std::vector<Group> groups_;
  std::vector<int> place_;   // by row, as the segments count
  std::vector<Row> rows_;    // by place
  std::vector<Work> works_;  // tiles first
  int n_tiles_ = 0;
  int first_by_chunk_ = 0;  // rows before this place are of tiles
  std::vector<Part> parts_;
  std::vector<Wave> waves_;
  size_t n_states_ = 0;  // rows of states of one KV head, of the largest wave

  AlignedBuffer states_;          // (n_kv_head, n_states, group, state)
  AlignedBuffer running_;         // (n_kv_head, n_rows, 2, group, state), if there are several waves
  std::vector<Scratch> scratch_;  // one per worker
  int most_tile_rows_ = 0, most_tail_chunks_ = 0;
  size_t scores_floats_ = 0, tail_floats_ = 0;
};

}  // namespace longspec
