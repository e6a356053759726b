// SPDX-License-Identifier: Apache-2.0
//
// A file mapped read-only into memory. Move-only; the bytes stay valid while the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "longspec/status.h"

namespace longspec {

// What tells a file from others, and from itself before it was changed, without reading it: whoever changes a
// file changes the time the system notes for it, which no program can set.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // since 1970; of the contents, and of anything at all
  bool operator==(const FileIdentity&) const = default;
};

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const FileIdentity& identity() const { return identity_; }  // when it was opened

 private:
  MappedFile(const std::byte* data, size_t size, const FileIdentity& identity)
      : data_(data), size_(size), identity_(identity) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileIdentity identity_;
};

}  // namespace longspec
