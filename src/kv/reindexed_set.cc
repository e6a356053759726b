// SPDX-License-Identifier: Apache-2.0
#include "kv/reindexed_set.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/largest.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"

namespace longspec {

ReindexedSet::ReindexedSet(std::shared_ptr<ChunkPool> pool, Rotary rotary, const ReindexOptions& options,
                           ReindexSource source)
    : rotary_(std::move(rotary)), options_(options), source_(std::move(source)), slots_(std::move(pool)) {
  LS_CHECK(rotary_.kernels != nullptr && rotary_.row && options.chunk > 0 && options.n_chunks > 0);
  const KvLayout of_source = source_.cache->Span(0).layout;
  LS_CHECK(of_source.v_type == slots_.layout().v_type && of_source.head_dim == slots_.layout().head_dim);
}

Status ReindexedSet::Follow() {
  const int length = std::max(0, Entries());
  LS_CHECK(length >= length_);
  if (std::exchange(lost_, false)) return HoldLast(options_.n_chunks);
  LS_TRY(Reserve(n_slots() + length - length_, length - length_));
  for (; length_ < length; ++length_) {
    Want(length_, n_slots());
    held_.push_back(length_);
    const int chunk = length_ / options_.chunk;
    if (chunks_.empty() || chunks_.back() != chunk) chunks_.push_back(chunk);
  }
  LoadWanted();
  return {};
}

void ReindexedSet::Truncate(int length) {
  if (length >= length_) return;
  length_ = std::max(0, length);
  while (!held_.empty() && held_.back() >= length_) held_.pop_back();
  while (!chunks_.empty() && chunks_.back() >= Chunks(length_)) chunks_.pop_back();
  lost_ = lost_ || (length_ > 0 && (chunks_.empty() || chunks_.back() != Chunks(length_) - 1));
}

Status ReindexedSet::Choose(std::span<const float> scores) {
  LS_TRY(Follow());
  if (length_ == 0 || sees_all_) return {};
  const int n_chunks = Chunks(length_);
  std::vector<double> mean(Z(n_chunks));
  for (int c = 0; c < n_chunks; ++c) {
    const int begin = c * options_.chunk, end = std::min(begin + options_.chunk, length_);
    for (int p = begin; p < std::min<int>(end, static_cast<int>(scores.size())); ++p) {
      mean[Z(c)] += static_cast<double>(scores[Z(p)]);
    }
    mean[Z(c)] /= end - begin;
  }
  std::vector<int32_t> best(Z(n_chunks));
  std::iota(best.begin(), best.end(), 0);
  KeepLargest(best, Z(options_.n_chunks), [&](int32_t c) { return mean[Z(c)]; });
  std::ranges::sort(best);
  if (best.back() != n_chunks - 1) best.push_back(n_chunks - 1);
  return Hold(best);
}

Status ReindexedSet::HoldLast(int n_chunks) {
  return HoldFrom(sees_all_ ? 0 : std::max(0, Chunks(std::max(0, Entries())) - n_chunks));
}

Status ReindexedSet::HoldFrom(int chunk) {
  length_ = std::max(0, Entries());
  lost_ = false;
  std::vector<int32_t> last;
  for (int c = chunk; c < Chunks(length_); ++c) last.push_back(c);
  return Hold(last);
}

Status ReindexedSet::SeeAll(bool all) {
  if (all == sees_all_) return {};
  sees_all_ = all;
  return HoldLast(options_.n_chunks);
}

Status ReindexedSet::MakeRoom(int n_rows) { return Reserve(n_slots() + n_rows, n_rows); }

// What enters the set then takes no memory.
Status ReindexedSet::Reserve(int n_slots, int n_entering) {
  try {
    held_.reserve(std::max(held_.capacity(), Z(n_slots)));
    chunks_.reserve(std::max(chunks_.capacity(), Z(Chunks(length_ + n_slots) + 1)));
    moves_.clear();
    moves_.reserve(Z(n_entering));
    slots_.Reserve(n_slots);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a draft's working cache of " + std::to_string(n_slots) +
                             " positions");
  }
  return {};
}

// Makes the set these chunks. A slot that holds the right entry already is left as it is.
Status ReindexedSet::Hold(std::span<const int32_t> chunks) {
  std::vector<int32_t> wanted;
  for (const int32_t c : chunks) {
    for (int p = c * options_.chunk; p < std::min((c + 1) * options_.chunk, length_); ++p)
      wanted.push_back(p);
  }
  LS_TRY(Reserve(static_cast<int>(wanted.size()), static_cast<int>(wanted.size())));
  for (size_t slot = 0; slot < wanted.size(); ++slot) {
    if (slot < held_.size() && held_[slot] == wanted[slot]) continue;
    Want(wanted[slot], static_cast<int>(slot));
  }
  LoadWanted();
  held_.assign(wanted.begin(), wanted.end());
  chunks_.assign(chunks.begin(), chunks.end());
  return {};
}

void ReindexedSet::Want(int entry, int slot) {
  const int from = source_.first + entry;
  moves_.push_back({.slot = {.from = from, .to = slot},
                    .position = {.from = source_.position ? source_.position(from) : from, .to = slot}});
}

// From the source to the set: keys are turned to the position of their slot.
void ReindexedSet::LoadWanted() {
  slots_.mover().MoveTurned(source_.cache->Span(0), slots_.writer(), slots_.n_layer(), rotary_, moves_);
}

}  // namespace longspec
