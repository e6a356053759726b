// SPDX-License-Identifier: Apache-2.0
//
// Owner of zeroed, 64-byte aligned memory (transparent huge pages asked for from 2 MiB on). Move-only.
#pragma once

#include <cstddef>
#include <memory>

namespace longspec {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc; callers that allocate what a user asked for check the plan first.
  explicit AlignedBuffer(size_t bytes);

  // For who keeps it by its address alone.
  std::byte* Release() { return data_.release(); }
  // REQUIRES: of `bytes`, and released.
  static AlignedBuffer Owning(std::byte* released, size_t bytes) {
    AlignedBuffer buffer;
    buffer.data_ = {released, Unmap{bytes}};
    buffer.size_ = bytes;
    return buffer;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  size_t size_ = 0;
};

}  // namespace longspec
