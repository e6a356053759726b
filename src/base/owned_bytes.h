// SPDX-License-Identifier: Apache-2.0
//
// Bytes that live as long as this object, wherever they are: in memory that was filled, or in a file that is
// mapped. Move-only; moving does not move the bytes.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <variant>

#include "base/aligned_buffer.h"
#include "base/mapped_file.h"

namespace longspec {

class OwnedBytes {
 public:
  OwnedBytes() = default;
  explicit OwnedBytes(AlignedBuffer buffer)
      : bytes_(buffer.data(), buffer.size()), owner_(std::move(buffer)) {}
  // The file's bytes from `offset` on. REQUIRES: it has as many.
  OwnedBytes(MappedFile file, size_t offset)
      : bytes_(file.bytes().subspan(offset)), owner_(std::move(file)) {}

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  std::variant<AlignedBuffer, MappedFile> owner_;
};

}  // namespace longspec
