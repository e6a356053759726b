// SPDX-License-Identifier: Apache-2.0
#include "kv/chunk_pool.h"

#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace longspec {

// A few chunks that were given back wait for the next who wants one: fresh memory costs as much as filling
// it.
struct ChunkPool::Shared {
  static constexpr size_t kMostSpare = 4;
  std::mutex mutex;
  size_t held = 0;
  std::vector<AlignedBuffer> spare;
};

size_t KvChunkBytes(const KvLayout& layout, int n_layer) {
  return static_cast<size_t>(n_layer) * layout.layer_bytes();
}

ChunkPool::ChunkPool(const KvLayout& layout, int n_layer, size_t most_chunks)
    : layout_(layout),
      n_layer_(n_layer),
      chunk_bytes_(KvChunkBytes(layout, n_layer)),
      most_chunks_(most_chunks),
      shared_(std::make_shared<Shared>()) {
  shared_->spare.reserve(Shared::kMostSpare);
}

Result<KvChunkRef> ChunkPool::Take() {
  AlignedBuffer bytes;
  {
    const std::lock_guard lock(shared_->mutex);
    if (most_chunks_ > 0 && shared_->held >= most_chunks_) {
      return ResourceExhausted("all " + std::to_string(most_chunks_) + " chunks of " +
                               std::to_string(kKvChunk) + " positions of the key-value cache are in use");
    }
    ++shared_->held;
    if (!shared_->spare.empty()) {
      bytes = std::move(shared_->spare.back());
      shared_->spare.pop_back();
    }
  }
  const auto give_back = [shared = shared_](KvChunk* chunk) {
    {
      const std::lock_guard lock(shared->mutex);
      --shared->held;
      if (shared->spare.size() < Shared::kMostSpare && chunk->bytes.size() > 0) {
        shared->spare.push_back(std::move(chunk->bytes));
      }
    }
    delete chunk;
  };
  try {
    KvChunkRef chunk(new KvChunk{std::move(bytes)}, give_back);
    if (chunk->bytes.size() == 0) chunk->bytes = AlignedBuffer(chunk_bytes_);
    return chunk;
  } catch (const std::bad_alloc&) {
    // A chunk that came into being has been given back.
    return ResourceExhausted(
        "no memory for the key-value cache beyond " + std::to_string(held() * chunk_bytes_ >> 20) +
        " MiB; a smaller --ctx-size or a smaller type (--cache-type-k/-v q8_0) needs less");
  }
}

Result<KvChunkRef> ChunkPool::Copy(const KvChunkRef& of, int n) {
  LS_ASSIGN(KvChunkRef copy, Take());
  const std::byte* from = of->bytes.data();
  std::byte* to = copy->bytes.data();
  const auto blocks = static_cast<size_t>((n + kKeyBlock - 1) / kKeyBlock);
  const size_t k_bytes = blocks * (layout_.k_head_bytes() / (kKvChunk / kKeyBlock));
  const size_t v_bytes = static_cast<size_t>(n) * layout_.v_row_bytes();
  for (int layer = 0; layer < n_layer_; ++layer) {
    for (const auto& [stride, bytes] :
         {std::pair(layout_.k_head_bytes(), k_bytes), std::pair(layout_.v_head_bytes(), v_bytes)}) {
      for (int head = 0; head < layout_.n_kv_head; ++head, from += stride, to += stride)
        std::memcpy(to, from, bytes);
    }
  }
  return copy;
}

size_t ChunkPool::held() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->held;
}

size_t ChunkPool::free() const {
  if (most_chunks_ == 0) return std::numeric_limits<size_t>::max();
  return most_chunks_ - held();
}

}  // namespace longspec
