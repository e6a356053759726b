// SPDX-License-Identifier: Apache-2.0
//
// A file that appears under its name only when it is complete: bytes go to `path.tmp`, which Commit() syncs
// and renames. Destroyed without a successful Commit(), the temporary file is removed and `path` is
// untouched; what a killed process left of it is written over. One thread at a time. Two processes may write
// the same file, but not at once: the second is refused (the temporary file is locked, where the file system
// has locks).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "longspec/status.h"

namespace longspec {

class AtomicFile {
 public:
  // kIo also if another process is writing the file; kResourceExhausted if `reserve` bytes of it have no room
  // on the disk, where the file system can tell.
  static Result<AtomicFile> Create(const std::string& path, uint64_t reserve = 0);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status Write(std::span<const std::byte> bytes);
  Status Commit();

 private:
  AtomicFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;  // -1 once committed or moved from
};

}  // namespace longspec
