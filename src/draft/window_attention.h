// SPDX-License-Identifier: Apache-2.0
//
// Attention of a draft model's rows, each over a range of stored positions and then over a path of rows that
// are kept elsewhere: its own ancestors. The stored positions may be the target's cache, read where it lies,
// or a ring that keeps the last of them. A row's result depends on its own range and path and on the chunks
// of 256 positions that the call covers, not on the rows beside it or the number of threads. Memory does not
// depend on how many positions there are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_span.h"
#include "base/thread_team.h"
#include "kernels/ops.h"

namespace longspec {

// One layer's keys and values by absolute position; position p lies in chunk p / 256, counted round the ring.
struct StoredKeys {
  KvSpan span;
  int n_ring_chunks = 0;  // 0: no ring, all chunks are there

  const std::byte* keys(int chunk, int head) const { return span.keys(Place(chunk), head); }
  const std::byte* values(int chunk, int head) const { return span.values(Place(chunk), head); }
  int Place(int chunk) const { return n_ring_chunks > 0 ? chunk % n_ring_chunks : chunk; }
};

// What one row sees: positions [begin, end), then these slots of the tail in this order (at most 256).
struct RowView {
  int begin = 0, end = 0;
  std::span<const int32_t> tail;
};

class WindowAttention {
 public:
  WindowAttention(const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads);

  // Before each Run, by one thread. Rows and what they refer to must stay until Run is over. `tail` may be
  // null if no row has one. Allocates only for more rows or a longer tail than before.
  void Plan(const StoredKeys& stored, const KvSpan* tail, int n_tail, std::span<const RowView> rows);

  // Called by every worker after a barrier. q: (n_kv_head, n_rows, group, head_dim) f32; out: (n_rows,
  // n_head * head_dim) f32, zero for a row that sees nothing. Contains a barrier and uses Worker::Claim
  // before it; on return `out` is whole after the caller's next barrier.
  void Run(ThreadTeam::Worker& worker, const float* q, float* out);

  size_t bytes() const;

 private:
  struct Scratch {
    std::vector<float> scores;       // (rows of a tile * group, 256)
    std::vector<float> states;       // (rows of a tile * group, state)
    std::vector<float> tail_scores;  // (tail chunks, group, 256)
    std::vector<int> lows, counts;   // (rows of a tile * group): keys of a chunk that are seen
  };
  struct Tile {
    int kv_head, row_begin, row_end;
  };

  size_t state_floats() const { return kernels::kStateHeader + static_cast<size_t>(shape_.head_dim); }
  float* SplitState(int kv_head, int split, int row) const;
  void AttendSplit(const Tile& tile, int split, const float* q, Scratch& own);
  void AttendChunk(const Tile& tile, int chunk, const float* q, Scratch& own, float* states);
  void AttendTail(int kv_head, int row, const float* q, Scratch& own);
  void FinishRow(int kv_head, int row, const float* q, Scratch& own, float* out);

  const kernels::KernelTable* kernels_;
  const AttentionShape shape_;
  std::vector<Scratch> scratch_;  // one per worker
  mutable std::vector<float> states_;

  StoredKeys stored_;
  const KvSpan* tail_ = nullptr;
  int n_tail_ = 0;
  std::span<const RowView> rows_;
  int first_chunk_ = 0, end_chunk_ = 0;
};

}  // namespace longspec
