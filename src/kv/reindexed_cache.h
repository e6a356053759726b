// SPDX-License-Identifier: Apache-2.0
//
// The cache of a language model that drafts with SpecExtend (kv/reindexed_set.h): every position is kept in a
// store, with its key in f32, and the model sees a set of some of them. length() counts all positions; rows
// are computed at position n_slots() of the set. Rows that are committed enter store and set with what they
// saw.
#pragma once

#include <memory>

#include "kv/full_cache.h"
#include "kv/kv_cache.h"
#include "kv/reindexed_set.h"

namespace longspec {

class ReindexedCache : public KvCache {
 public:
  virtual ReindexedSet& set() = 0;
  // May be made longer by others, who then cut the set to what it holds rightly. REQUIRES: no transaction is
  // open.
  virtual FullCache& store() = 0;
};

// How a store lies for a cache of this layout.
KvLayout ReindexedStoreLayout(const KvLayout& layout);

// `pool`: a place of its own for the set. `store`: laid out so, with the same layers; others may hold chunks
// of it too.
std::unique_ptr<ReindexedCache> MakeReindexedCache(std::shared_ptr<ChunkPool> pool, Rotary rotary,
                                                   const ReindexOptions& options,
                                                   std::shared_ptr<ChunkPool> store);

}  // namespace longspec
