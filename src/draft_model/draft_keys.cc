// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_keys.h"

#include <algorithm>
#include <new>
#include <numeric>
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

SequenceKeys::SequenceKeys(std::shared_ptr<DraftKeys> of_all, int capacity)
    : of_all_(std::move(of_all)), cache_(MakeFullCache(of_all_->pool(), capacity)) {}

void SequenceKeys::MarkStored() {
  stored_.insert(stored_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
}

void SequenceKeys::KeepBefore(int position) {
  stored_.erase(std::ranges::lower_bound(stored_, position), stored_.end());
  cache_->Truncate(static_cast<int>(stored_.size()));
  waiting_.erase(std::ranges::lower_bound(waiting_, position), waiting_.end());
}

bool SequenceKeys::Adopt(std::span<const int32_t> text) {
  const auto known = static_cast<size_t>(of_all_->Adopt(text, *cache_));
  if (known <= stored_.size()) return false;
  stored_.resize(known);
  std::iota(stored_.begin(), stored_.end(), 0);
  return true;
}

void SequenceKeys::Share(std::span<const int32_t> text) const {
  size_t n = 0;
  while (n < stored_.size() && stored_[n] == static_cast<int32_t>(n)) ++n;
  of_all_->Keep(text.first(n), *cache_);
}

size_t SequenceKeys::bytes() const {
  return cache_->bytes() + (stored_.capacity() + waiting_.capacity()) * sizeof(int32_t);
}

}  // namespace longspec
