// SPDX-License-Identifier: Apache-2.0
//
// For tests only: GGUF bytes put together field by field, so that any of them can be wrong, and a folder for
// files.
#pragma once

#include <stdlib.h>

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
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
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

// Removed with everything in it when the test ends.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "longspec-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string File(const std::string& name) const { return (path_ / name).string(); }

  std::string Write(const std::string& name, std::span<const std::byte> bytes) const {
    std::ofstream(File(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return File(name);
  }

  size_t n_files() const {
    size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++n;
    return n;
  }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::byte> ReadFileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

}  // namespace longspec
