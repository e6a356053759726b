// SPDX-License-Identifier: Apache-2.0
//
// What of a draft's keys and values SpecExtend shows it (arXiv 2505.20776): copies
// of some chunks of them, whose keys are turned from the positions where they lie to those that they have in
// the set: 0, 1, 2, ... So a draft that knows short texts only reads long ones. Which chunks are in the set
// is said by the attention of the target: scores of all entries come from outside. The newest chunk is always
// there.
//
// What the set holds depends on the source and on what was chosen, and not on when it was told of either.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/kv_span.h"
#include "kv/chunk_pool.h"
#include "kv/kv_cache.h"
#include "kv/kv_slots.h"
#include "kv/rotary.h"
#include "longspec/status.h"

namespace longspec {

struct ReindexOptions {
  int chunk = 32;     // entries
  int n_chunks = 32;  // of the set
};

// Where the entries are: slots of a cache that keeps all of them, from `first` on.
struct ReindexSource {
  const KvCache* cache = nullptr;
  int first = 0;
  std::function<int(int slot)> position = {};  // its key's; null: the slot's number
};

class ReindexedSet {
 public:
  // `pool`: a place of its own, with layers as the source has, and values of the same type. `source` is
  // borrowed.
  ReindexedSet(std::shared_ptr<ChunkPool> pool, Rotary rotary, const ReindexOptions& options,
               ReindexSource source);

  // Takes in the entries that the source has got at its end: they enter the newest chunk, and then new ones.
  Status Follow();
  // Entries from `length` on are gone, or others. Where so much is cut off that the newest chunk is not in
  // the set any more, it is to be the last chunks.
  void Truncate(int length);

  // Chooses the chunks of the highest mean score, of equal ones the earlier, and the newest. `scores`: of the
  // first entries; those beyond count as 0. This and what follows is of all entries that the source has.
  Status Choose(std::span<const float> scores);
  // Makes the set the last `n_chunks` chunks, as after a prompt of which nothing was scored.
  Status HoldLast(int n_chunks);
  // The same from this chunk on.
  Status HoldFrom(int chunk);
  // With `all`, every entry is seen from now on, where it is, as if nothing were chosen. Without it, the set
  // is the last chunks until the next choice.
  Status SeeAll(bool all);

  const ReindexOptions& options() const { return options_; }
  int n_slots() const { return static_cast<int>(held_.size()); }
  std::span<const int32_t> chunks() const { return chunks_; }  // of the set, ascending
  KvSpan Span(int layer) const {
    KvSpan span = slots_.span(layer);
    span.n_committed = n_slots();
    return span;
  }

  // Room for rows behind the set, and for so many that enter it.
  Status MakeRoom(int n_rows);
  KvWriter Writer(int layer) const { return slots_.writer(layer); }

  const Rotary& rotary() const { return rotary_; }
  size_t bytes() const { return slots_.bytes() + held_.capacity() * sizeof(int32_t); }

 private:
  int Entries() const { return source_.cache->n_slots() - source_.first; }
  int Chunks(int n_entries) const { return (n_entries + options_.chunk - 1) / options_.chunk; }
  Status Hold(std::span<const int32_t> chunks);
  Status Reserve(int n_slots, int n_entering);
  void Want(int entry, int slot);
  void LoadWanted();

  const Rotary rotary_;
  const ReindexOptions options_;
  const ReindexSource source_;
  bool sees_all_ = false;
  bool lost_ = false;          // what it held is gone: the next call makes it the last chunks
  int length_ = 0;             // entries that it knows of
  std::vector<int32_t> held_;  // by slot: the entry
  std::vector<int32_t> chunks_;
  KvSlots slots_;
  std::vector<TurnedMove> moves_;  // from the source, of one call
};

}  // namespace longspec
