// SPDX-License-Identifier: Apache-2.0
//
// Where the keys and values of all sequences of an engine live: chunks of 256 positions in all layers, held
// by counted references. A chunk that several hold is never written: whoever wants to takes a copy. So a fork
// costs nothing, and a beginning that two sequences have in common is held once. What the first memory has no
// room for may lie in another. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attention/kv_span.h"
#include "kv/chunk_memory.h"
#include "kv/kv_mover.h"
#include "longspec/status.h"

namespace longspec {

// A memory and how many chunks of a pool may lie there.
struct ChunkTier {
  std::shared_ptr<ChunkMemory> memory;
  size_t most_chunks = kUnlimited;
};

// Goes back to its pool with the last reference; the pool may be gone before it.
class KvChunk {
 public:
  struct Pool;
  explicit KvChunk(std::shared_ptr<Pool> pool);  // without bytes, which the pool gives it
  ~KvChunk();
  KvChunk(const KvChunk&) = delete;
  KvChunk& operator=(const KvChunk&) = delete;

  std::byte* data() const { return data_; }  // (n_layer, layer_bytes)
  // These of its bytes are going to be read. Returns at once.
  void Prefetch(size_t begin, size_t bytes) const;

 private:
  friend class ChunkPool;
  struct Tier;
  const std::shared_ptr<Pool> pool_;
  Tier* tier_ = nullptr;  // where it is counted
  std::byte* data_ = nullptr;
};
using KvChunkRef = std::shared_ptr<KvChunk>;

// Bytes of one chunk (256 positions, all layers).
size_t KvChunkBytes(const KvLayout& layout, int n_layer);

// Who holds chunks that may go for others.
class ChunkReclaimer {
 public:
  virtual ~ChunkReclaimer() = default;
  virtual bool GiveUpChunk() = 0;  // false: it holds none that may go
};

class ChunkPool {
 public:
  // A chunk lies in the first tier that has room. REQUIRES: memories of KvChunkBytes. `mover` can reach all
  // of them, and is borrowed.
  ChunkPool(const KvLayout& layout, int n_layer, std::vector<ChunkTier> tiers,
            const KvMover& mover = HostMover());

  // Its bytes are unspecified. kResourceExhausted: no room.
  Result<KvChunkRef> Take();
  // A chunk of one's own that holds the same in its first n positions.
  Result<KvChunkRef> Copy(const KvChunkRef& of, int n);

  // Whoever takes a chunk from now on, on whatever thread, while there are so many or more, first asks the
  // reclaimer to give one up. Null: nobody is asked. Borrowed.
  void SetReclaimer(ChunkReclaimer* reclaimer, size_t from_chunks);

  const KvLayout& layout() const { return layout_; }
  int n_layer() const { return n_layer_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  const KvMover& mover() const { return mover_; }
  size_t held() const;  // chunks

 private:
  const KvLayout layout_;
  const int n_layer_;
  const size_t chunk_bytes_;
  const KvMover& mover_;
  const std::shared_ptr<KvChunk::Pool> shared_;
};

// Chunks beyond the memory where models compute.
struct KvOffload {
  std::string folder = {};    // where a file for them is made; empty: all are in memory
  size_t memory_chunks = 0;   // so many are in memory, and what comes after them in the file
  bool to_host = false;       // of a card: or after them in host memory
  size_t fetched_chunks = 0;  // of a layer of what lies there: fetched to the card ahead, at a time
};
std::shared_ptr<ChunkPool> MakeHostPool(const KvLayout& layout, int n_layer, const KvOffload& offload = {});

}  // namespace longspec
