// SPDX-License-Identifier: Apache-2.0
//
// For tests only: GGUF bytes put together field by field, so that any of them can be wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_format.h"

namespace longspec {

class GgufBytes {
 public:
  template <typename T>
  GgufBytes& Put(T value) {
    const size_t end = bytes_.size();
    bytes_.resize(end + sizeof value);
    std::memcpy(bytes_.data() + end, &value, sizeof value);
    return *this;
  }

  GgufBytes& String(std::string_view text) {
    Put<uint64_t>(text.size());
    const auto* p = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), p, p + text.size());
    return *this;
  }

  GgufBytes& Header(uint64_t n_tensors, uint64_t n_entries, uint32_t version = kGgufVersion) {
    return Put(kGgufMagic).Put(version).Put(n_tensors).Put(n_entries);
  }

  GgufBytes& Key(std::string_view key, GgufType type) { return String(key).Put(type); }

  template <typename T>
  GgufBytes& Entry(std::string_view key, GgufType type, T value) {
    return Key(key, type).Put(value);
  }

  GgufBytes& ArrayEntry(std::string_view key, GgufType element, uint64_t n) {
    return Key(key, GgufType::kArray).Put(element).Put(n);
  }

  GgufBytes& Tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                    uint64_t offset) {
    String(name).Put(static_cast<uint32_t>(shape.size()));
    for (const uint64_t dim : shape) Put(dim);
    return Put(type).Put(offset);
  }

  // Zeros up to the alignment, then n more.
  GgufBytes& Data(size_t n, size_t alignment = kGgufDefaultAlignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + n);
    return *this;
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  operator std::span<const std::byte>() const { return bytes_; }  // NOLINT(google-explicit-constructor)

 private:
  std::vector<std::byte> bytes_;
};

inline std::vector<std::byte> ReadFileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

}  // namespace longspec
