// SPDX-License-Identifier: Apache-2.0
#include "draft_model/block_forward.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"

namespace longspec {

std::shared_ptr<DraftLane> BlockForward::MakeLane(const SharedParts& target, const DraftLayer& layer,
                                                  const DraftHead& head, const DraftMatrix* other) {
  std::vector<const DraftMatrix*> matrices = layer.matrices();
  matrices.push_back(&head.matrix);
  if (other != nullptr) matrices.push_back(other);
  return std::make_shared<DraftLane>(target, Size(layer.block, head.matrix.n_out()), matrices);
}

BlockForward::BlockForward(const DraftBlock& block, std::shared_ptr<DraftKeys> keys, int capacity,
                           std::shared_ptr<DraftLane> lane, bool sees_first)
    : rope_(block.rope),
      width_(block.shape.n_embd),
      kept_keys_(std::move(keys)),
      cache_(MakeFullCache(kept_keys_->pool(), capacity)),
      sees_first_(sees_first),
      slots_(MakeHostPool(kept_keys_->pool()->layout(), 1)),
      waiting_states_(block.shape.n_embd),
      waiting_before_(block.shape.n_embd),
      lane_(std::move(lane)) {}

BlockForward::~BlockForward() {
  static_cast<void>(Settle());  // what could not be settled is not shared
  Share();
}

size_t BlockForward::bytes() const {
  return cache_->bytes() + slots_.bytes() + waiting_states_.bytes() + waiting_before_.bytes() +
         (tokens_.capacity() + positions_.capacity() + waiting_.capacity()) * sizeof(int32_t) +
         lane_->bytes();
}

// Forgets the states of `position` and after it.
void BlockForward::KeepBefore(int position) {
  positions_.erase(std::ranges::lower_bound(positions_, position), positions_.end());
  cache_->Truncate(static_cast<int>(positions_.size()));
  waiting_.erase(std::ranges::lower_bound(waiting_, position), waiting_.end());
  waiting_states_.Truncate(static_cast<int>(waiting_.size()));
  waiting_before_.Truncate(static_cast<int>(waiting_.size()));
  tokens_.resize(std::min(tokens_.size(), Z(position)));
}

// For other sequences: states up to the first position that it has not read.
void BlockForward::Share() {
  size_t n = 0;
  while (n < positions_.size() && positions_[n] == static_cast<int32_t>(n)) ++n;
  kept_keys_->Keep(std::span(tokens_).first(n), *cache_);
}

Status BlockForward::Follow(std::span<const int32_t> committed) {
  LS_TRY(Settle());
  // The last token's state is asked of the target again, as the root of a tree.
  const auto before = BeforeLast(committed);
  const auto same = std::ranges::mismatch(tokens_, before).in1 - tokens_.begin();
  if (Z(same) < tokens_.size()) Share();
  KeepBefore(static_cast<int>(same));
  const size_t known = Z(kept_keys_->Adopt(before, *cache_));
  if (known <= positions_.size()) return {};
  positions_.resize(known);
  std::iota(positions_.begin(), positions_.end(), 0);
  tokens_.assign(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(known));
  return {};
}

Status BlockForward::Read(const CommittedRows& rows, const StateRows& states, const DraftAttention& w,
                          std::span<const float> norm, const StateBefore& before) {
  if (rows.rows.empty()) return {};
  const auto n_rows = static_cast<int>(rows.rows.size());
  KeepBefore(rows.first);  // what the target computed again is read again
  weights_ = &w;
  norm_ = norm;
  before_ = before.w;
  // Before any of their states: what waits always has its tokens, also after an error.
  const auto more = rows.sequence.first(Z(rows.first + n_rows)).subspan(tokens_.size());
  tokens_.insert(tokens_.end(), more.begin(), more.end());
  for (int begin = 0, end = 0; begin < n_rows; begin = end) {
    if (waiting_.size() == Z(kMaxRows)) LS_TRY(Settle());
    end = std::min(n_rows, begin + kMaxRows - static_cast<int>(waiting_.size()));
    waiting_states_.Append(states, rows.rows.subspan(Z(begin), Z(end - begin)));
    if (before_ != nullptr) {
      if (begin == 0) waiting_before_.Append(before.first);
      const int above = std::max(begin - 1, 0);
      waiting_before_.Append(before.states, rows.rows.subspan(Z(above), Z(end - 1 - above)));
    }
    for (int i = begin; i < end; ++i) waiting_.push_back(rows.first + i);
  }
  if (n_rows <= rows.n_new) return {};
  LS_TRY(Settle());  // of a prompt
  Share();
  return {};
}

Status BlockForward::Settle() {
  if (waiting_.empty()) return {};
  const auto n_rows = static_cast<int>(waiting_.size());
  LS_ASSIGN(KvTransaction kept, cache_->Begin(n_rows));
  const KvWriter writer = kept.Writer(0);
  places_.clear();
  float* const x = lane_->x();
  waiting_states_.rows().Copy(x);
  for (int i = 0; i < n_rows; ++i) {
    lane_->SetAngles(i, rope_, waiting_[Z(i)]);
    places_.push_back({.to = &writer, .slot = kept.slot() + i});
  }
  lane_->Run(n_rows, [&](DraftPass& pass) {
    if (before_ != nullptr) pass.Multiply(*before_, pass.Of(waiting_before_.row(0), width_), x, /*add=*/true);
    pass.StoreKeys(pass.Norm(x, norm_), *weights_, places_);
  });
  kept.CommitAll();
  positions_.insert(positions_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  waiting_states_.Truncate(0);
  waiting_before_.Truncate(0);
  return {};
}

void BlockForward::PlaceKeys(std::span<const Part> parts) {
  places_.clear();
  for (const Part& part : parts) {
    BlockForward& of = *part.of;
    LS_CHECK(places_.size() + part.rows.size() <= Z(kMaxRows));
    of.slots_.Reserve(of.n_slots_);
    of.slot_writer_ = of.slots_.writer();
    for (const Row& row : part.rows) {
      lane_->SetAngles(n_rows(), rope_, row.position);
      places_.push_back({.to = row.slot < 0 ? nullptr : &of.slot_writer_, .slot = std::max(row.slot, 0)});
    }
  }
}

// What is kept and a tail together are one sequence of keys, whatever positions are missing between them:
// where a key stands is in its angles.
AttentionSegment BlockForward::View(std::span<const Row> rows) {
  views_.clear();
  const int begin = !sees_first_ && !positions_.empty() && positions_.front() == 0 ? 1 : 0;
  for (const Row& row : rows) views_.push_back({.begin = begin, .end = cache_->length(), .tail = row.tail});
  return {.stored = kept(), .tail = slots(), .tail_begin = 0, .tail_end = n_slots_, .rows = views_};
}

void BlockForward::Place(std::span<const Part> parts) {
  PlaceKeys(parts);
  segments_.clear();
  for (const Part& part : parts) segments_.push_back(part.of->View(part.rows));
  attention().Plan(segments_);
  for (int r = 0; r < n_rows(); ++r) places_[Z(r)].query = attention().Place(r);
}

}  // namespace longspec
