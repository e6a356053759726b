// SPDX-License-Identifier: Apache-2.0
//
// A file that appears under its name only when it is complete: bytes go to `path.tmp`, which Commit() syncs
// and renames. Destroyed without a successful Commit(), the temporary file is removed and `path` is
// untouched. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "longspec/status.h"

namespace longspec {

class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path);

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
