// SPDX-License-Identifier: Apache-2.0
//
// A file mapped read-only into memory. Move-only; the bytes stay valid while the object lives.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "longspec/status.h"

namespace longspec {

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace longspec
