// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of chunks lie: parts of one size that are taken and given back, in host memory, in a file,
// or on a device, whose addresses the host cannot read (kv/kv_mover.h moves what lies at them). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "longspec/status.h"

namespace longspec {

inline constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

class ChunkMemory {
 public:
  virtual ~ChunkMemory() = default;
  // A chunk, its bytes unspecified. kIo, kResourceExhausted, or std::bad_alloc.
  virtual Result<std::byte*> Take() = 0;
  virtual void Return(std::byte* chunk) = 0;
  // These bytes of a chunk are going to be read. Returns at once.
  virtual void Prefetch(const std::byte* /*begin*/, size_t /*bytes*/) const {}
};

// Some chunks that were given back wait for the next who wants one: fresh memory costs more than filling it.
// Half of those in use, so that each of many sequences that stand at the end of their second chunk finds one;
// never more than could be held beside those that are.
class HostMemory final : public ChunkMemory {
 public:
  // At most `most_chunks` are ever taken at once.
  explicit HostMemory(size_t chunk_bytes, size_t most_chunks = kUnlimited);

  Result<std::byte*> Take() override;
  void Return(std::byte* chunk) override;

  size_t spare() const;  // chunks that wait

 private:
  static constexpr size_t kMostSpare = 256;

  const size_t chunk_bytes_, most_chunks_;
  mutable std::mutex mutex_;
  size_t taken_ = 0;
  std::vector<AlignedBuffer> spare_;
};

// For what is larger than memory and not all needed at once: the system keeps as much of the file in memory
// as there is room for. The file is made when it is first needed, and has no name from then on: what a
// process that dies leaves is nothing, and nobody can damage it.
class FileMemory final : public ChunkMemory {
 public:
  FileMemory(std::string folder, size_t chunk_bytes);  // which must exist when the file is made
  ~FileMemory() override;
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // Room on the disk is taken now and not when it is written. kIo: no file can be made. kResourceExhausted:
  // the disk is full.
  Result<std::byte*> Take() override;
  void Return(std::byte* chunk) override;
  void Prefetch(const std::byte* begin, size_t bytes) const override;

  uint64_t bytes() const;  // on the disk

 private:
  const std::string folder_;
  const size_t mapped_bytes_;  // of a chunk: whole pages
  mutable std::mutex mutex_;
  int fd_ = -1;       // none yet
  uint64_t end_ = 0;  // of the file
  std::vector<std::byte*> all_, unused_;
};

}  // namespace longspec
