// SPDX-License-Identifier: Apache-2.0
#include "draft_text/ngram_index.h"

#include <algorithm>

#include "base/check.h"

namespace longspec {
namespace {

uint64_t Hash(std::span<const int32_t> ngram) {
  uint64_t h = 0x9E3779B97F4A7C15;
  for (const int32_t token : ngram) {
    h = (h ^ static_cast<uint32_t>(token)) * 0xBF58476D1CE4E5B9;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace

NgramIndex::NgramIndex(int min_n, int max_n) {
  LS_CHECK(min_n >= 1 && min_n <= max_n);
  for (int n = min_n; n <= max_n; ++n) levels_.emplace_back(n);
}

void NgramIndex::Assign(std::span<const int32_t> tokens) {
  const bool extends =
      tokens.size() >= tokens_.size() && std::equal(tokens_.begin(), tokens_.end(), tokens.begin());
  if (!extends) {
    tokens_.clear();
    for (Level& level : levels_) level = Level(level.n);
  }
  Append(tokens.subspan(tokens_.size()));
}

void NgramIndex::Append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    tokens_.push_back(token);
    // The new token is what follows the n-grams that end before it.
    const auto continuation = static_cast<int32_t>(tokens_.size()) - 1;
    for (Level& level : levels_) {
      if (continuation >= level.n) Insert(level, continuation);
    }
  }
}

size_t NgramIndex::bytes() const {
  size_t total = tokens_.capacity() * sizeof(int32_t);
  for (const Level& level : levels_) {
    total += level.slots.capacity() * sizeof(Slot) + level.previous.capacity() * sizeof(int32_t);
  }
  return total;
}

int NgramIndex::First(int n) const {
  const Slot* slot = Suffix(n);
  return slot == nullptr ? -1 : slot->first;
}

int NgramIndex::Last(int n) const {
  const Slot* slot = Suffix(n);
  return slot == nullptr ? -1 : slot->last;
}

int NgramIndex::Previous(int n, int continuation) const {
  LS_CHECK(continuation >= n && static_cast<size_t>(continuation) < tokens_.size());
  return level(n).previous[static_cast<size_t>(continuation - n)];
}

const NgramIndex::Level& NgramIndex::level(int n) const {
  LS_CHECK(n >= levels_.front().n && n <= levels_.back().n);
  return levels_[static_cast<size_t>(n - levels_.front().n)];
}

// The slot of an n-gram, or the empty one where it would go.
size_t NgramIndex::Find(const Level& level, std::span<const int32_t> ngram) const {
  const size_t mask = level.slots.size() - 1;
  for (size_t i = Hash(ngram) & mask;; i = (i + 1) & mask) {
    const Slot& slot = level.slots[i];
    if (slot.last < 0) return i;
    const int32_t* known = tokens_.data() + slot.last - level.n;
    if (std::equal(ngram.begin(), ngram.end(), known)) return i;
  }
}

const NgramIndex::Slot* NgramIndex::Suffix(int n) const {
  const Level& known = level(n);
  if (tokens_.size() < static_cast<size_t>(n)) return nullptr;
  const Slot& slot = known.slots[Find(known, tokens().last(static_cast<size_t>(n)))];
  return slot.last < 0 ? nullptr : &slot;
}

void NgramIndex::Insert(Level& level, int32_t continuation) {
  const auto n = static_cast<size_t>(level.n);
  const auto ngram = tokens().subspan(static_cast<size_t>(continuation) - n, n);
  Slot& slot = level.slots[Find(level, ngram)];
  level.previous.push_back(slot.last);
  if (slot.last < 0) {
    slot.first = continuation;
    ++level.used;
  }
  slot.last = continuation;
  if (2 * level.used > level.slots.size()) Grow(level);
}

void NgramIndex::Grow(Level& level) {
  std::vector<Slot> old(2 * level.slots.size());
  old.swap(level.slots);
  const auto n = static_cast<size_t>(level.n);
  for (const Slot& slot : old) {
    if (slot.last < 0) continue;
    level.slots[Find(level, tokens().subspan(static_cast<size_t>(slot.last) - n, n))] = slot;
  }
}

}  // namespace longspec
