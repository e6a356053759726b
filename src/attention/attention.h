// SPDX-License-Identifier: Apache-2.0
//
// Hybrid tree attention in the canonical order (docs/arithmetic.md). A row sees the committed positions, then
// its ancestors in depth order, at consecutive absolute positions: the sequence plain decoding would see.
// Softmax goes chunk by chunk of 256 absolute positions, merged in ascending order. Whole chunks of committed
// keys are shared by all rows; the ragged rest, committed tail first and ancestors after, is finished per
// row. There is no (rows x context) mask.
//
// Plan once per forward pass, Run once per layer. Plan allocates; Run does not. A plan is used by one team at
// a time.
#pragma once

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

class AttentionPlan {
 public:
  AttentionPlan(const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads)
      : kernels_(kernels), shape_(shape), n_threads_(n_threads) {}

  // Rows of one sequence: `base` committed slots, then n_rows rows in the slots after them. `parents`
  // (n_rows): each row's parent row, -1 for a row right after the committed ones; empty: a chain.
  void Plan(int base, int n_rows, std::span<const int32_t> parents);

  // Called by every worker. q: (n_kv_head, n_rows, group, head_dim) f32; out: (n_rows, n_head * head_dim)
  // f32. The rows' keys and values are in the span already. Contains barriers; on return `out` is whole after
  // the caller's next one.
  void Run(ThreadTeam::Worker& worker, const KvSpan& span, const float* q, float* out);

 private:
  struct Tile;
  int RowsPerTile() const;
  int CountAt(int row, int chunk) const;
  void AttendStored(const Tile& tile, int chunk, float* states) const;
  void AttendTail(const Tile& tile, int tail_chunk, float* states) const;
  void AttendChunk(const Tile& tile, int chunk, float* states) const;
  kernels::Upcoming KeysOf(const KvSpan& span, int kv_head, int chunk) const;
  void RunByChunk(ThreadTeam::Worker& worker, const KvSpan& span, const float* q, float* out);
  void RunByTile(ThreadTeam::Worker& worker, const KvSpan& span, const float* q, float* out);

  size_t state_floats() const { return kernels::kStateHeader + static_cast<size_t>(shape_.head_dim); }

  const kernels::KernelTable* kernels_;
  AttentionShape shape_;
  int n_threads_;

  int base_ = 0, n_rows_ = 0;
  bool is_chain_ = true;
  int n_stored_chunks_ = 0;  // chunks read where they lie
  int n_chunks_ = 0;         // those, then the per-row tail chunks of a tree
  bool by_chunk_ = true;
  std::vector<int32_t> path_begin_, path_;  // tree: row i's ancestors and itself, as rows

  AlignedBuffer states_;  // by chunk: (n_kv_head, n_chunks, n_rows * group, state)
  struct Scratch {
    AlignedBuffer floats;     // scores, scores of speculated slots, states of a tile
    std::vector<int> counts;  // (rows of a tile * group)
  };
  std::vector<Scratch> scratch_;  // one per worker
  size_t scores_floats_ = 0, tree_scores_floats_ = 0, tile_states_floats_ = 0;
};

}  // namespace longspec
