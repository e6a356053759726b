// SPDX-License-Identifier: Apache-2.0
#include "kv/chunk_pool.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "base/status_macros.h"

namespace longspec {

struct KvChunk::Tier {
  std::shared_ptr<ChunkMemory> memory;
  size_t most_chunks;
  size_t held = 0;
};

// What a pool and its chunks count.
struct KvChunk::Pool {
  std::mutex mutex;
  std::vector<Tier> tiers;
  size_t held = 0;
  ChunkReclaimer* reclaimer = nullptr;
  size_t reclaimed_from = 0;  // chunks

  ChunkReclaimer* WhoGivesOneUp() {
    const std::lock_guard lock(mutex);
    return held < reclaimed_from ? nullptr : reclaimer;
  }
};

KvChunk::KvChunk(std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {}

KvChunk::~KvChunk() {
  if (tier_ == nullptr) return;
  if (data_ != nullptr) tier_->memory->Return(data_);
  const std::lock_guard lock(pool_->mutex);
  --pool_->held;
  --tier_->held;
}

void KvChunk::Prefetch(size_t begin, size_t bytes) const { tier_->memory->Prefetch(data_ + begin, bytes); }

size_t KvChunkBytes(const KvLayout& layout, int n_layer) {
  return static_cast<size_t>(n_layer) * layout.layer_bytes();
}

ChunkPool::ChunkPool(const KvLayout& layout, int n_layer, std::vector<ChunkTier> tiers, const KvMover& mover)
    : layout_(layout),
      n_layer_(n_layer),
      chunk_bytes_(KvChunkBytes(layout, n_layer)),
      mover_(mover),
      shared_(std::make_shared<KvChunk::Pool>()) {
  for (ChunkTier& tier : tiers) {
    shared_->tiers.push_back({.memory = std::move(tier.memory), .most_chunks = tier.most_chunks});
  }
}

void ChunkPool::SetReclaimer(ChunkReclaimer* reclaimer, size_t from_chunks) {
  const std::lock_guard lock(shared_->mutex);
  shared_->reclaimer = reclaimer;
  shared_->reclaimed_from = from_chunks;
}

Result<KvChunkRef> ChunkPool::Take() try {
  for (ChunkReclaimer* from = shared_->WhoGivesOneUp(); from != nullptr; from = shared_->WhoGivesOneUp()) {
    if (!from->GiveUpChunk()) break;
  }
  auto chunk = std::make_shared<KvChunk>(shared_);
  {
    const std::lock_guard lock(shared_->mutex);
    const auto tier = std::ranges::find_if(shared_->tiers,
                                           [](const KvChunk::Tier& of) { return of.held < of.most_chunks; });
    if (tier == shared_->tiers.end()) {
      return ResourceExhausted("all " + std::to_string(shared_->held) + " chunks of " +
                               std::to_string(kKvChunk) + " positions of the key-value cache are in use");
    }
    ++shared_->held;
    ++tier->held;
    chunk->tier_ = &*tier;  // from here on it is given back if anything fails
  }
  LS_ASSIGN(chunk->data_, chunk->tier_->memory->Take());
  return chunk;
} catch (const std::bad_alloc&) {
  return ResourceExhausted(
      "no memory for the key-value cache beyond " + std::to_string(held() * chunk_bytes_ >> 20) +
      " MiB; a smaller --ctx-size or a smaller type (--cache-type-k/-v q8_0) needs less, and --kv-offload "
      "keeps a part of it in a file");
}

Result<KvChunkRef> ChunkPool::Copy(const KvChunkRef& of, int n) {
  LS_ASSIGN(KvChunkRef copy, Take());
  mover_.CopyChunk(layout_, n_layer_, n, of->data(), copy->data());
  return copy;
}

size_t ChunkPool::held() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->held;
}

std::shared_ptr<ChunkPool> MakeHostPool(const KvLayout& layout, int n_layer, const KvOffload& offload) {
  const size_t chunk_bytes = KvChunkBytes(layout, n_layer);
  const size_t in_memory = offload.folder.empty() ? kUnlimited : offload.memory_chunks;
  std::vector<ChunkTier> tiers = {
      {.memory = std::make_shared<HostMemory>(chunk_bytes, in_memory), .most_chunks = in_memory}};
  if (!offload.folder.empty()) {
    tiers.push_back({.memory = std::make_shared<FileMemory>(offload.folder, chunk_bytes)});
  }
  return std::make_shared<ChunkPool>(layout, n_layer, std::move(tiers));
}

}  // namespace longspec
