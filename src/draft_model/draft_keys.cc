// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_keys.h"

#include <algorithm>
#include <new>
#include <utility>

namespace longspec {

DraftKeys::DraftKeys(std::shared_ptr<ChunkPool> pool, size_t most_chunks)
    : pool_(std::move(pool)), most_chunks_(most_chunks) {}

void DraftKeys::Trim() {
  const size_t of_sequences = pool_->held() - index_.n_reclaimable();
  index_.Trim(std::max(most_chunks_ - std::min(most_chunks_, of_sequences), kFewChunks));
}

int DraftKeys::Adopt(std::span<const int32_t> tokens, FullCache& cache) {
  const std::lock_guard lock(mutex_);
  Trim();  // of sequences that ended since
  if (index_.LengthKnown(tokens) <= cache.length()) return cache.length();
  const PrefixIndex::Match match = index_.Find(tokens);
  const int length = std::min(match.length, cache.capacity());
  const auto n_chunks = static_cast<size_t>((length + kKvChunk - 1) / kKvChunk);
  cache.Adopt(std::span(match.chunks).first(n_chunks), length);
  return length;
}

void DraftKeys::Keep(std::span<const int32_t> tokens, const FullCache& cache) try {
  const std::lock_guard lock(mutex_);
  if (tokens.empty()) return;
  index_.Insert(tokens, cache.chunks());
  Trim();
} catch (const std::bad_alloc&) {
}

}  // namespace longspec
