// SPDX-License-Identifier: Apache-2.0
//
// What a draft model has made of texts, kept for all sequences of an engine: a draft that reads hidden states
// cannot make it again where another sequence has computed a beginning, and one that reads tokens need not.
// Keys and values by the tokens they depend on: slot i is that of token i, and depends on tokens 0 to i.
//
// And what of it one sequence has, of which a draft may have missed positions.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kv/chunk_pool.h"
#include "kv/full_cache.h"
#include "kv/prefix_index.h"

namespace longspec {

// Thread-safe.
class DraftKeys {
 public:
  // Always kept: also where no beginnings are kept a fork drafts as what it was forked from. (A sequence that
  // goes on copies the chunk that it shares, so what was known of its end would be lost with the first
  // token.)
  static constexpr size_t kFewChunks = 8;

  // Keeps as many chunks as there may be with those that sequences hold, and at least a few.
  DraftKeys(std::shared_ptr<ChunkPool> pool, size_t most_chunks);

  const std::shared_ptr<ChunkPool>& pool() const { return pool_; }

  // Makes `cache` (of this pool) hold the longest known beginning of `tokens`, if it is longer than what it
  // holds. Returns how many slots it holds then.
  int Adopt(std::span<const int32_t> tokens, FullCache& cache);
  // Remembers that the cache's first slots are those of these tokens. What there is no memory for is not
  // kept.
  void Keep(std::span<const int32_t> tokens, const FullCache& cache);

 private:
  void Trim();

  const std::shared_ptr<ChunkPool> pool_;
  std::mutex mutex_;
  const size_t most_chunks_;
  PrefixIndex index_;
};

// Which positions of its text a draft has read: those whose keys and values are stored, one slot of a cache
// each, and those behind them that wait to be. A few positions after each round would cost a pass over the
// draft's weights each time, and nobody looks at them before the next tree. Who has it keeps the text, and
// what it read of positions that wait. Not thread-safe.
class SequenceKeys {
 public:
  // `capacity`: positions.
  SequenceKeys(std::shared_ptr<DraftKeys> of_all, int capacity);

  FullCache& cache() { return *cache_; }
  const FullCache& cache() const { return *cache_; }
  const KvLayout& layout() const { return of_all_->pool()->layout(); }
  // Ascending; in the order of their slots.
  std::span<const int32_t> stored() const { return stored_; }
  std::span<const int32_t> waiting() const { return waiting_; }
  int n_waiting() const { return static_cast<int>(waiting_.size()); }

  // The next position that was read.
  void Wait(int position) { waiting_.push_back(position); }
  // Those that wait are in the cache now.
  void MarkStored();
  // Forgets this position and those after it.
  void KeepBefore(int position);

  // Takes over what is known of this text. False: it has as much already.
  bool Adopt(std::span<const int32_t> text);
  // For other sequences: of the text, what is stored up to the first position that is not.
  void Share(std::span<const int32_t> text) const;

  size_t bytes() const;

 private:
  const std::shared_ptr<DraftKeys> of_all_;
  const std::unique_ptr<FullCache> cache_;
  std::vector<int32_t> stored_, waiting_;
};

}  // namespace longspec
