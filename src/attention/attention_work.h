// SPDX-License-Identifier: Apache-2.0
//
// What the rows of a pass read of their caches, cut into works: a chunk, and rows that see it. A chunk that
// several sequences hold is read once for all their rows. It is known before anything is computed and is the
// same for all KV heads and layers, whoever computes: threads (attention.h) or a card (gpu/gpu_attention.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "attention/kv_span.h"

namespace longspec {

constexpr int ChunksOf(int positions) { return (positions + kKvChunk - 1) / kKvChunk; }

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

class AttentionWork {
 public:
  struct Cut {
    int rows_by_chunk;  // a segment of more rows is cut by tiles of rows
    int tile_rows;
    int work_rows;  // of a work of one chunk; sequences that hold a chunk share works up to so many
    size_t wave_states = std::numeric_limits<size_t>::max();  // rows of states; more are several waves
  };
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
    int first_part, last_part;  // of parts(), -1: none
  };
  // Rows [row_begin, row_end), which see this chunk of group `group`; chunk -1: all chunks, merged.
  struct Work {
    int group, chunk, row_begin, row_end;
    int state;  // of its wave: the place of its first row's state
  };
  // A state that a work leaves of a row. Those of a row follow each other by their chunks.
  struct Part {
    int state, next;  // next: of the same row, -1: none
  };
  // Works whose states fit into memory together.
  struct Wave {
    int work_begin, work_end, part_end;
  };

  explicit AttentionWork(const Cut& cut) : cut_(cut) {}

  // What segments view (chunks, rows, tails) must stay as long as the plan is used. Rows of all segments are
  // counted through, in their order.
  void Plan(std::span<const AttentionSegment> segments);

  std::span<const AttentionSegment> segments() const { return segments_; }
  std::span<const Group> groups() const { return groups_; }
  std::span<const Row> rows() const { return rows_; }     // by place: rows that share chunks lie together
  std::span<const Work> works() const { return works_; }  // tiles first
  std::span<const Part> parts() const { return parts_; }
  size_t n_states() const { return n_states_; }  // rows of states of one KV head, of the largest wave
  int PlaceOf(int row) const { return place_[static_cast<size_t>(row)]; }

  bool IsStored(const Group& group, int chunk) const { return chunk < group.n_stored; }
  // Where the first layer of a stored chunk lies.
  const std::byte* ChunkOf(const Group& group, int chunk) const;

 protected:
  Cut cut_;
  std::vector<AttentionSegment> segments_;
  std::vector<Group> groups_;
  std::vector<int> place_;  // by row, as the segments count
  std::vector<Row> rows_;   // by place
  std::vector<Work> works_;
  int n_tiles_ = 0;
  int first_by_chunk_ = 0;  // rows before this place are of tiles
  std::vector<Part> parts_;
  std::vector<Wave> waves_;
  size_t n_states_ = 0;
  int most_work_rows_ = 0;

 private:
  void PlanGroups();
  void PlanRows();
  void PlanWorks();
  bool Sees(const Row& row, int chunk) const;
  void AddWork(int group, int chunk, int row_begin, int row_end);
};

}  // namespace longspec
