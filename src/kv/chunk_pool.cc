// SPDX-License-Identifier: Apache-2.0
#include "kv/chunk_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace longspec {

// Some chunks that were given back wait for the next who wants one: fresh memory costs more than filling it.
// Half of those in use, so that each of many sequences that stand at the end of their second chunk finds one;
// never more than could be held beside those that are.
struct ChunkPool::Shared {
  static constexpr size_t kMostSpare = 256;
  size_t most_spare() const { return std::min({kMostSpare, 4 + in_memory / 2, most_in_memory - in_memory}); }

  std::mutex mutex;
  size_t held = 0;
  size_t in_memory = 0;  // of them
  size_t most_in_memory = std::numeric_limits<size_t>::max();
  std::vector<AlignedBuffer> spare;
  std::shared_ptr<SpillFile> file;  // null: not needed yet
  ChunkReclaimer* reclaimer = nullptr;
  size_t reclaimed_from = 0;  // chunks

  ChunkReclaimer* WhoGivesOneUp() {
    const std::lock_guard lock(mutex);
    return held < reclaimed_from ? nullptr : reclaimer;
  }
};

size_t KvChunkBytes(const KvLayout& layout, int n_layer) {
  return static_cast<size_t>(n_layer) * layout.layer_bytes();
}

ChunkPool::ChunkPool(const KvLayout& layout, int n_layer, size_t most_chunks, KvOffload offload)
    : layout_(layout),
      n_layer_(n_layer),
      chunk_bytes_(KvChunkBytes(layout, n_layer)),
      most_chunks_(most_chunks),
      offload_(std::move(offload)),
      shared_(std::make_shared<Shared>()) {
  shared_->spare.reserve(Shared::kMostSpare);
  if (most_chunks_ > 0) shared_->most_in_memory = most_chunks_;
  if (!offload_.folder.empty()) {
    shared_->most_in_memory = std::min(shared_->most_in_memory, offload_.memory_chunks);
  }
}

void ChunkPool::SetReclaimer(ChunkReclaimer* reclaimer, size_t from_chunks) {
  const std::lock_guard lock(shared_->mutex);
  shared_->reclaimer = reclaimer;
  shared_->reclaimed_from = from_chunks;
}

Result<KvChunkRef> ChunkPool::Take() {
  for (ChunkReclaimer* from = shared_->WhoGivesOneUp(); from != nullptr; from = shared_->WhoGivesOneUp()) {
    if (!from->GiveUpChunk()) break;
  }
  AlignedBuffer bytes;
  bool in_memory = true;
  {
    const std::lock_guard lock(shared_->mutex);
    if (most_chunks_ > 0 && shared_->held >= most_chunks_) {
      return ResourceExhausted("all " + std::to_string(most_chunks_) + " chunks of " +
                               std::to_string(kKvChunk) + " positions of the key-value cache are in use");
    }
    in_memory = offload_.folder.empty() || shared_->in_memory < offload_.memory_chunks;
    ++shared_->held;
    shared_->in_memory += in_memory ? 1 : 0;
    if (in_memory && !shared_->spare.empty()) {
      bytes = std::move(shared_->spare.back());
      shared_->spare.pop_back();
    }
  }
  const auto give_back = [shared = shared_](KvChunk* chunk) {
    {
      const std::lock_guard lock(shared->mutex);
      --shared->held;
      shared->in_memory -= chunk->in_memory() ? 1 : 0;
      if (shared->spare.size() < shared->most_spare() && chunk->memory().size() > 0) {
        shared->spare.push_back(std::move(chunk->memory()));
      } else if (shared->spare.size() > shared->most_spare()) {
        shared->spare.pop_back();
      }
    }
    delete chunk;
  };
  const auto not_made = [&](Status why) {
    const std::lock_guard lock(shared_->mutex);
    --shared_->held;
    shared_->in_memory -= in_memory ? 1 : 0;
    return why;
  };
  bool made = false;
  try {
    std::unique_ptr<KvChunk> chunk;
    if (in_memory) {
      if (bytes.size() == 0) bytes = AlignedBuffer(chunk_bytes_);
      chunk = std::make_unique<KvChunk>(std::move(bytes));
    } else {
      auto file = File();
      if (!file.ok()) return not_made(file.status());
      const auto part = (*file)->Take();
      if (!part.ok()) return not_made(part.status());
      chunk = std::make_unique<KvChunk>(*file, *part);
    }
    made = true;  // from here on it is given back if anything fails
    return KvChunkRef(chunk.release(), give_back);
  } catch (const std::bad_alloc&) {
    const Status status = ResourceExhausted(
        "no memory for the key-value cache beyond " + std::to_string(held() * chunk_bytes_ >> 20) +
        " MiB; a smaller --ctx-size or a smaller type (--cache-type-k/-v q8_0) needs less, and --kv-offload "
        "keeps a part of it in a file");
    return made ? status : not_made(status);
  }
}

// Made when it is first needed.
Result<std::shared_ptr<SpillFile>> ChunkPool::File() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->file == nullptr) {
    LS_ASSIGN(shared_->file, SpillFile::Create(offload_.folder, chunk_bytes_));
  }
  return shared_->file;
}

Result<KvChunkRef> ChunkPool::Copy(const KvChunkRef& of, int n) {
  LS_ASSIGN(KvChunkRef copy, Take());
  const std::byte* from = of->data();
  std::byte* to = copy->data();
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

size_t ChunkPool::spare() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->spare.size();
}

size_t ChunkPool::held() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->held;
}

uint64_t ChunkPool::file_bytes() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->file == nullptr ? 0 : shared_->file->bytes();
}

size_t ChunkPool::free() const {
  if (most_chunks_ == 0) return std::numeric_limits<size_t>::max();
  return most_chunks_ - held();
}

}  // namespace longspec
