// SPDX-License-Identifier: Apache-2.0
//
// What a draft model has made of texts, kept for all sequences of an engine: a draft that reads hidden states
// cannot make it again where another sequence has computed a beginning, and one that reads tokens need not.
// Keys and values by the tokens they depend on: slot i is that of token i, and depends on tokens 0 to i.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "kv/chunk_pool.h"
#include "kv/full_cache.h"
#include "kv/prefix_index.h"

namespace longspec {

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

}  // namespace longspec
