// SPDX-License-Identifier: Apache-2.0
#include "kv/prompt_cache.h"

#include <algorithm>

#include "base/check.h"

namespace longspec {

PromptCache::Limit::Limit(PromptCache* cache, size_t most_chunks) : cache_(cache) {
  if (cache_ == nullptr) return;
  LS_CHECK(cache_->limit_ == 0 && most_chunks > 0);
  cache_->limit_ = most_chunks;
  cache_->limited_ = std::this_thread::get_id();
  cache_->pool_->SetReclaimer(cache_, most_chunks);
  cache_->KeepLimit();  // of what was taken since the last one
}

PromptCache::Limit::~Limit() {
  if (cache_ == nullptr) return;
  cache_->KeepLimit();
  cache_->pool_->SetReclaimer(nullptr, 0);
  cache_->limit_ = 0;
}

void PromptCache::KeepLimit() {
  while (pool_->held() > limit_ && index_.DropOldest()) {
  }
}

// Others may load a session meanwhile.
bool PromptCache::GiveUpChunk() { return std::this_thread::get_id() == limited_ && index_.DropOldest(); }

void PromptCache::Remember(std::span<const int32_t> tokens, const FullCache& cache, size_t length) {
  index_.Insert(tokens.first(length), cache.chunks());
}

void PromptCache::Trim() {
  const size_t held = pool_->held(), kept = index_.n_reclaimable();
  const size_t in_use = held - std::min(held, kept);
  index_.Trim(room_.beside + (room_.context - std::min(room_.context, in_use)));
}

PromptCache::LastChunk PromptCache::Settle(const KvChunkRef& chunk, int length, size_t needed,
                                           bool is_wanted) {
  const size_t held = pool_->held();
  if (limit_ == 0 || held + needed <= limit_) return LastChunk::kCopied;
  const int own = length % kKvChunk;
  if (!is_wanted && index_.GiveUp(chunk, own)) return LastChunk::kOwn;
  if (held - index_.n_reclaimable() + needed <= limit_) return LastChunk::kCopied;  // others go
  return index_.GiveUp(chunk, kKvChunk) ? LastChunk::kOwn : LastChunk::kNoRoom;
}

bool PromptCache::Fit(PrefixIndex::Match& match, size_t needed, bool is_wanted) {
  if (match.length % kKvChunk == 0) return false;
  const LastChunk last = Settle(match.chunks.back(), match.length, needed, is_wanted);
  if (last == LastChunk::kNoRoom) match.KeepWholeChunks();
  return last == LastChunk::kOwn;
}

void PromptCache::TakeBackEnd(const FullCache& cache, size_t needed, bool is_wanted) {
  if (cache.length() % kKvChunk == 0 || cache.chunks().back().use_count() == 1) return;
  (void)Settle(cache.chunks().back(), cache.length(), needed, is_wanted);
}

}  // namespace longspec
