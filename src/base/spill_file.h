// SPDX-License-Identifier: Apache-2.0
//
// Memory that lies in a file, for what is larger than memory and not all needed at once: the system keeps as
// much of it in memory as there is room for. In parts of one size. The file has no name once it is open: what
// a process that dies leaves is nothing, and nobody can damage it. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec {

class SpillFile {
 public:
  // In this folder, which must exist. kIo: it cannot be written there.
  static Result<std::shared_ptr<SpillFile>> Create(const std::string& folder, size_t part_bytes);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // A part with unspecified bytes; its room on the disk is taken now and not when it is written.
  // kResourceExhausted: the disk is full.
  Result<std::byte*> Take();
  void Return(std::byte* part);
  // Asks the system to read these bytes of a part ahead. Returns at once.
  static void Prefetch(const std::byte* begin, size_t bytes);

  uint64_t bytes() const;  // on the disk

 private:
  SpillFile(std::string folder, int fd, size_t part_bytes);

  const std::string folder_;
  const int fd_;
  const size_t mapped_bytes_;  // of a part: whole pages
  mutable std::mutex mutex_;
  uint64_t end_ = 0;  // of the file
  std::vector<std::byte*> all_, unused_;
};

}  // namespace longspec
