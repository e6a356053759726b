// SPDX-License-Identifier: Apache-2.0
//
// The cache that keeps every position: chunks of a pool, taken as the sequence grows. Chunks that it shares
// with another cache are copied when they are about to be written.
#pragma once

#include <memory>
#include <span>

#include "kv/chunk_pool.h"
#include "kv/kv_cache.h"

namespace longspec {

class FullCache : public KvCache {
 public:
  // A cache that holds the same, in the same chunks. Both go their own way.
  virtual std::unique_ptr<FullCache> Fork() const = 0;

  // Makes it hold `length` positions in these chunks (the last may hold more), which others may hold too.
  // REQUIRES: no transaction is open; chunks of its pool, as many as `length` needs; length <= capacity.
  virtual void Adopt(std::span<const KvChunkRef> chunks, int length) = 0;

  // The chunks that hold committed positions.
  virtual std::span<const KvChunkRef> chunks() const = 0;
  virtual ChunkPool& pool() const = 0;
  const KvMover& mover() const final { return pool().mover(); }
};

// `capacity` positions at most.
std::unique_ptr<FullCache> MakeFullCache(std::shared_ptr<ChunkPool> pool, int capacity);
// The same with a pool of its own in host memory.
std::unique_ptr<FullCache> MakeFullCache(const KvLayout& layout, int n_layer, int capacity);

}  // namespace longspec
