// SPDX-License-Identifier: Apache-2.0
//
// Memory of a card: pieces of one's own, lists that are brought there, states that drafts copy, and chunks of
// caches. The card is borrowed, but by chunks, which may live longer than the model that took them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/gpu/runtime.h"
#include "kv/chunk_memory.h"
#include "longspec/status.h"
#include "tensor/state_rows.h"

namespace longspec {

using kernels::gpu::Runtime;

// Move-only.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  // Unspecified. Throws std::bad_alloc.
  GpuBuffer(Runtime& card, size_t bytes);
  ~GpuBuffer() { Release(); }
  GpuBuffer(GpuBuffer&& other) noexcept
      : card_(other.card_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  GpuBuffer& operator=(GpuBuffer&& other) noexcept;

  // At least so large from now on, whatever it held. Throws std::bad_alloc.
  void Reserve(Runtime& card, size_t bytes);

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void Release();

  Runtime* card_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Lists that a pass or a move reads, laid out on the host and brought to the card as one.
class GpuLists {
 public:
  explicit GpuLists(Runtime& card) : card_(card) {}

  void Clear() { host_.clear(); }
  // Where it is going to lie.
  template <typename T>
  size_t Add(std::span<const T> list) {
    const size_t at = (host_.size() + kAlignment - 1) / kAlignment * kAlignment;
    host_.resize(at + list.size_bytes());
    if (!list.empty()) std::memcpy(host_.data() + at, list.data(), list.size_bytes());
    return at;
  }
  template <typename T>
  size_t Add(const std::vector<T>& list) {
    return Add(std::span<const T>(list));
  }
  // Throws std::bad_alloc.
  void Bring() {
    there_.Reserve(card_, host_.size());
    card_.Copy(host_.data(), there_.data(), host_.size());
  }
  // What lies there, once it was brought.
  template <typename T>
  const T* At(size_t at) const {
    return reinterpret_cast<const T*>(there_.data() + at);
  }

 private:
  static constexpr size_t kAlignment = 16;

  Runtime& card_;
  std::vector<std::byte> host_;
  GpuBuffer there_;
};

class GpuStates final : public StateMemory {
 public:
  explicit GpuStates(Runtime& card) : card_(card) {}

  float* Take(size_t floats) const override;
  void Return(float* at) const override { card_.Free(reinterpret_cast<std::byte*>(at)); }
  void Copy(const float* from, size_t floats, float* to) const override {
    card_.Copy(from, to, floats * sizeof(float));
  }

 private:
  Runtime& card_;
};

// Which chunks lie in host memory, and how many of them are fetched ahead at a time (chunk_fetches.h).
// Thread-safe.
class ChunksOnHost {
 public:
  void Add(const std::byte* chunk);
  void Remove(const std::byte* chunk);
  bool Holds(const std::byte* chunk) const;

  void ExpectFetched(size_t chunks);  // of a layer; the most that is expected counts
  size_t fetched() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const std::byte*> chunks_;
  size_t fetched_ = 0;
};

// In the card's memory, or in the host's, where the card reads them.
class GpuChunks final : public ChunkMemory {
 public:
  // `on_host`: who knows these chunks, which lie there; null: they lie in the card's memory.
  GpuChunks(std::shared_ptr<Runtime> card, size_t chunk_bytes,
            std::shared_ptr<ChunksOnHost> on_host = nullptr)
      : card_(std::move(card)), chunk_bytes_(chunk_bytes), on_host_(std::move(on_host)) {}
  ~GpuChunks() override;

  Result<std::byte*> Take() override;
  void Return(std::byte* chunk) override;

 private:
  // Chunks that wait for the next who wants one: taking memory of a card waits for all it does.
  static constexpr size_t kMostSpare = 64;

  void Free(std::byte* chunk) const;

  const std::shared_ptr<Runtime> card_;
  const size_t chunk_bytes_;
  const std::shared_ptr<ChunksOnHost> on_host_;
  std::mutex mutex_;
  std::vector<std::byte*> spare_;
};

}  // namespace longspec
