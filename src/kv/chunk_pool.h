// SPDX-License-Identifier: Apache-2.0
//
// Where the keys and values of all sequences of an engine live: chunks of 256 positions in all layers, held
// by counted references. A chunk that several hold is never written: whoever wants to takes a copy. So a fork
// costs nothing, and a beginning that two sequences have in common is held once. What memory has no room for
// may lie in a file. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "attention/kv_span.h"
#include "base/aligned_buffer.h"
#include "base/spill_file.h"
#include "longspec/status.h"

namespace longspec {

class KvChunk {
 public:
  explicit KvChunk(AlignedBuffer memory) : memory_(std::move(memory)), data_(memory_.data()) {}
  // A part of a file.
  KvChunk(std::shared_ptr<SpillFile> file, std::byte* part) : file_(std::move(file)), data_(part) {}
  ~KvChunk() {
    if (file_ != nullptr) file_->Return(data_);
  }
  KvChunk(const KvChunk&) = delete;
  KvChunk& operator=(const KvChunk&) = delete;

  std::byte* data() const { return data_; }  // (n_layer, layer_bytes)
  bool in_memory() const { return file_ == nullptr; }
  AlignedBuffer& memory() { return memory_; }

 private:
  AlignedBuffer memory_;
  std::shared_ptr<SpillFile> file_;
  std::byte* data_;
};
// Gives the chunk back to its pool with the last reference; the pool may be gone before it.
using KvChunkRef = std::shared_ptr<KvChunk>;

// Bytes of one chunk (256 positions, all layers).
size_t KvChunkBytes(const KvLayout& layout, int n_layer);

// Chunks beyond memory.
struct KvOffload {
  std::string folder = {};   // where a file for them is made; empty: all are in memory
  size_t memory_chunks = 0;  // so many are in memory, and what comes after them in the file
};

// Who holds chunks that may go for others.
class ChunkReclaimer {
 public:
  virtual ~ChunkReclaimer() = default;
  virtual bool GiveUpChunk() = 0;  // false: it holds none that may go
};

class ChunkPool {
 public:
  // `most_chunks`: held by anyone at once; 0: no limit but memory.
  ChunkPool(const KvLayout& layout, int n_layer, size_t most_chunks = 0, KvOffload offload = {});

  // Its bytes are unspecified. kResourceExhausted: the limit, or no memory.
  Result<KvChunkRef> Take();
  // A chunk of one's own that holds the same in its first n positions.
  Result<KvChunkRef> Copy(const KvChunkRef& of, int n);

  // From now on whoever takes a chunk, on whatever thread, beyond so many has the reclaimer give up one
  // before, if it can; null: nobody does. Borrowed.
  void SetReclaimer(ChunkReclaimer* reclaimer, size_t from_chunks);

  const KvLayout& layout() const { return layout_; }
  int n_layer() const { return n_layer_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  size_t most_chunks() const { return most_chunks_; }
  size_t held() const;          // chunks
  size_t spare() const;         // chunks that were given back and wait for who takes the next one
  uint64_t file_bytes() const;  // on the disk
  size_t free() const;          // chunks that Take still gives; the largest number where there is no limit

 private:
  struct Shared;
  const KvLayout layout_;
  const int n_layer_;
  Result<std::shared_ptr<SpillFile>> File();

  const size_t chunk_bytes_, most_chunks_;
  const KvOffload offload_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace longspec
