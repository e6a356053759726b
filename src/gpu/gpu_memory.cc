// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_memory.h"

#include <algorithm>
#include <new>
#include <string>

namespace longspec {

GpuBuffer::GpuBuffer(Runtime& card, size_t bytes) : card_(&card), size_(bytes) {
  if (bytes == 0) return;
  data_ = card.Allocate(bytes);
  if (data_ == nullptr) throw std::bad_alloc();
}

GpuBuffer& GpuBuffer::operator=(GpuBuffer&& other) noexcept {
  if (this == &other) return *this;
  Release();
  card_ = other.card_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void GpuBuffer::Release() {
  if (data_ != nullptr) card_->Free(data_);
  data_ = nullptr;
  size_ = 0;
}

void GpuBuffer::Reserve(Runtime& card, size_t bytes) {
  if (bytes <= size_) return;
  const size_t wanted = std::max(bytes, size_ + size_ / 2);  // contexts grow
  Release();
  *this = GpuBuffer(card, wanted);
}

float* GpuStates::Take(size_t floats) const {
  std::byte* const at = card_.Allocate(floats * sizeof(float));
  if (at == nullptr) throw std::bad_alloc();
  return reinterpret_cast<float*>(at);
}

void ChunksOnHost::Add(const std::byte* chunk) {
  const std::lock_guard lock(mutex_);
  chunks_.insert(chunk);
}

void ChunksOnHost::Remove(const std::byte* chunk) {
  const std::lock_guard lock(mutex_);
  chunks_.erase(chunk);
}

bool ChunksOnHost::Holds(const std::byte* chunk) const {
  const std::lock_guard lock(mutex_);
  return chunks_.contains(chunk);
}

void ChunksOnHost::ExpectFetched(size_t chunks) {
  const std::lock_guard lock(mutex_);
  fetched_ = std::max(fetched_, chunks);
}

size_t ChunksOnHost::fetched() const {
  const std::lock_guard lock(mutex_);
  return fetched_;
}

void GpuChunks::Free(std::byte* chunk) const {
  if (on_host_ == nullptr) {
    card_->Free(chunk);
    return;
  }
  on_host_->Remove(chunk);
  card_->FreeOnHost(chunk);
}

GpuChunks::~GpuChunks() {
  for (std::byte* const chunk : spare_) Free(chunk);
}

Result<std::byte*> GpuChunks::Take() {
  const std::lock_guard lock(mutex_);
  if (!spare_.empty()) {
    std::byte* const chunk = spare_.back();
    spare_.pop_back();
    return chunk;
  }
  spare_.reserve(kMostSpare);  // so that Return cannot fail
  const bool on_host = on_host_ != nullptr;
  std::byte* const chunk = on_host ? card_->AllocateOnHost(chunk_bytes_) : card_->Allocate(chunk_bytes_);
  if (chunk != nullptr) {
    if (on_host) on_host_->Add(chunk);
    return chunk;
  }
  if (on_host) {
    return ResourceExhausted("no memory of the host that " + card_->facts().name +
                             " could read for more of the key-value cache");
  }
  return ResourceExhausted("no memory of " + card_->facts().name +
                           " for more of the key-value cache: " + std::to_string(card_->FreeMemory() >> 20) +
                           " MiB are free; a smaller --ctx-size or a smaller type (--cache-type-k/-v q8_0) "
                           "needs less");
}

void GpuChunks::Return(std::byte* chunk) {
  const std::lock_guard lock(mutex_);
  if (spare_.size() < kMostSpare && spare_.capacity() > 0) {
    spare_.push_back(chunk);
  } else {
    Free(chunk);
  }
}

}  // namespace longspec
