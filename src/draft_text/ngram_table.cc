// SPDX-License-Identifier: Apache-2.0
#include "draft_text/ngram_table.h"

#include <algorithm>

#include "base/largest.h"
#include "base/size.h"

namespace longspec {
namespace {

constexpr double kDoubt = 4;  // occurrences, as in draft_text/ppm.h

}  // namespace

size_t NgramTable::Hash::operator()(const std::array<int32_t, kLength>& tokens) const {
  uint64_t h = 0x9E3779B97F4A7C15;
  for (const int32_t token : tokens) {
    h = (h ^ static_cast<uint32_t>(token)) * 0xBF58476D1CE4E5B9;
    h ^= h >> 29;
  }
  return h;
}

void NgramTable::Append(int32_t token) {
  std::rotate(newest_.begin(), newest_.begin() + 1, newest_.end());
  newest_.back() = token;
  const int32_t last = n_tokens_++;
  if (n_tokens_ < kLength) return;
  const auto [it, is_new] = entry_of_.try_emplace(newest_, static_cast<int32_t>(entries_.size()));
  if (is_new) entries_.push_back({.tokens = newest_});
  Entry& entry = entries_[Z(it->second)];
  ++entry.count;
  entry.last = last;
  First& first = first_[newest_.front()];
  ++first.n;
  Raise(it->second, &first.best);
}

// It has occurred last of all, so it comes before all that are no more frequent. Those that are not in the
// list are no better than its last, since a place in the order is gained only by occurring.
void NgramTable::Raise(int32_t entry, std::vector<int32_t>* best) const {
  std::erase(*best, entry);
  const auto place = std::ranges::find_if(
      *best, [&](int32_t other) { return entries_[Z(other)].count <= entries_[Z(entry)].count; });
  best->insert(place, entry);
  if (std::ssize(*best) > kMost) best->pop_back();
}

void NgramTable::Clear() {
  n_tokens_ = 0;
  entries_.clear();
  entry_of_.clear();
  first_.clear();
}

std::vector<NgramTable::Entry> NgramTable::Best(int32_t first) const {
  std::vector<Entry> best;
  const auto it = first_.find(first);
  if (it == first_.end()) return best;
  for (const int32_t entry : it->second.best) best.push_back(entries_[Z(entry)]);
  return best;
}

// first: the token. last: what follows it, a token and then one in the upper half.
SuffixContext NgramTable::After(int32_t token) const {
  return {.first = token, .last = 0, .length = first_.contains(token) ? 1 : 0};
}

void NgramTable::Continuations(const SuffixContext& context, int most, std::vector<Continuation>& out) const {
  out.clear();
  const auto it = first_.find(static_cast<int32_t>(context.first));
  if (it == first_.end() || context.length < 1 || context.length >= kLength) return;
  const auto n_known = Z(context.length);
  const std::array<int32_t, 2> after = {static_cast<int32_t>(context.last & 0xFFFFFFFF),
                                        static_cast<int32_t>(context.last >> 32)};
  double total = 0;
  for (const int32_t i : it->second.best) {
    const Entry& entry = entries_[Z(i)];
    if (!std::equal(entry.tokens.begin() + 1, entry.tokens.begin() + context.length, after.begin())) continue;
    total += entry.count;
    const int32_t token = entry.tokens[n_known];
    auto same = std::ranges::find(out, token, &Continuation::token);
    if (same == out.end()) {
      const int64_t next = n_known == 1 ? int64_t{token} : context.last | int64_t{token} << 32;
      out.push_back({.token = token,
                     .share = 0,
                     .context = {.first = context.first, .last = next, .length = context.length + 1}});
      same = out.end() - 1;
    }
    same->share += entry.count;
  }
  if (context.length == 1) total = it->second.n;
  for (Continuation& c : out) c.share /= total + kDoubt;
  KeepLargest(out, Z(most), &Continuation::share);
}

size_t NgramTable::bytes() const {
  // A node of a hash table is two pointers more than what it holds.
  constexpr size_t kNode = 2 * sizeof(void*);
  constexpr size_t kOfEntry = sizeof(std::array<int32_t, kLength>) + sizeof(int32_t) + kNode;
  constexpr size_t kOfFirst = sizeof(int32_t) + sizeof(First) + kNode;
  return entries_.capacity() * sizeof(Entry) + entry_of_.size() * kOfEntry + first_.size() * kOfFirst +
         std::min(entries_.size(), first_.size() * kMost) * sizeof(int32_t) +
         (entry_of_.bucket_count() + first_.bucket_count()) * sizeof(void*);
}

}  // namespace longspec
