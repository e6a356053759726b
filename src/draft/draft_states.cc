// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_states.h"

#include <algorithm>
#include <new>

namespace longspec {
namespace {

// A sequence that goes on copies the chunk that it shares, so what was known of its end would be lost with
// the first token.
constexpr size_t kFewChunks = 8;

}  // namespace

DraftStates::DraftStates(const KvLayout& layout, int n_layer, size_t most_chunks)
    : pool_(std::make_shared<ChunkPool>(layout, n_layer)), most_chunks_(std::max(most_chunks, kFewChunks)) {}

int DraftStates::Adopt(std::span<const int32_t> tokens, FullCache& cache) {
  const std::lock_guard lock(mutex_);
  index_.Trim(most_chunks_);  // of sequences that ended since
  if (index_.LengthKnown(tokens) <= cache.length()) return cache.length();
  const PrefixIndex::Match match = index_.Find(tokens);
  const int length = std::min(match.length, cache.capacity());
  const auto n_chunks = static_cast<size_t>((length + kKvChunk - 1) / kKvChunk);
  cache.Adopt(std::span(match.chunks).first(n_chunks), length);
  return length;
}

void DraftStates::Keep(std::span<const int32_t> tokens, const FullCache& cache) try {
  const std::lock_guard lock(mutex_);
  if (tokens.empty()) return;
  index_.Insert(tokens, cache.chunks());
  index_.Trim(most_chunks_);
} catch (const std::bad_alloc&) {
}

}  // namespace longspec
