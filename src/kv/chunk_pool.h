// SPDX-License-Identifier: Apache-2.0
//
// Where the keys and values of all sequences of an engine live: chunks of 256 positions in all layers, held
// by counted references. A chunk that several hold is never written: whoever wants to takes a copy. So a fork
// costs nothing, and a beginning that two sequences have in common is held once. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "attention/kv_span.h"
#include "base/aligned_buffer.h"
#include "longspec/status.h"

namespace longspec {

struct KvChunk {
  AlignedBuffer bytes;  // (n_layer, layer_bytes)
};
// Gives the chunk back to its pool with the last reference; the pool may be gone before it.
using KvChunkRef = std::shared_ptr<KvChunk>;

// Bytes of one chunk (256 positions, all layers).
size_t KvChunkBytes(const KvLayout& layout, int n_layer);

class ChunkPool {
 public:
  // `most_chunks`: held by anyone at once; 0: no limit but memory.
  ChunkPool(const KvLayout& layout, int n_layer, size_t most_chunks = 0);

  // Its bytes are unspecified. kResourceExhausted: the limit, or no memory.
  Result<KvChunkRef> Take();
  // A chunk of one's own that holds the same in its first n positions.
  Result<KvChunkRef> Copy(const KvChunkRef& of, int n);

  const KvLayout& layout() const { return layout_; }
  int n_layer() const { return n_layer_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  size_t most_chunks() const { return most_chunks_; }
  size_t held() const;  // chunks
  size_t free() const;  // chunks that Take still gives; the largest number where there is no limit

 private:
  struct Shared;
  const KvLayout layout_;
  const int n_layer_;
  const size_t chunk_bytes_, most_chunks_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace longspec
