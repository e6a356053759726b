// SPDX-License-Identifier: Apache-2.0
#include "draft_model/block_forward.h"

#include <algorithm>
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
      keys_(std::move(keys), capacity),
      sees_first_(sees_first),
      slots_(MakeHostPool(keys_.layout(), 1)),
      waiting_states_(block.shape.n_embd),
      waiting_before_(block.shape.n_embd),
      lane_(std::move(lane)) {}

BlockForward::~BlockForward() {
  static_cast<void>(Settle());  // what could not be settled is not shared
  keys_.Share(tokens_);
}

size_t BlockForward::bytes() const {
  return keys_.bytes() + slots_.bytes() + waiting_states_.bytes() + waiting_before_.bytes() +
         tokens_.capacity() * sizeof(int32_t) + lane_->bytes();
}

// Forgets the states of `position` and after it.
void BlockForward::KeepBefore(int position) {
  keys_.KeepBefore(position);
  waiting_states_.Truncate(keys_.n_waiting());
  waiting_before_.Truncate(keys_.n_waiting());
  tokens_.resize(std::min(tokens_.size(), Z(position)));
}

Status BlockForward::Follow(std::span<const int32_t> committed) {
  LS_TRY(Settle());
  // The last token's state is asked of the target again, as the root of a tree.
  const auto before = BeforeLast(committed);
  const auto same = std::ranges::mismatch(tokens_, before).in1 - tokens_.begin();
  if (Z(same) < tokens_.size()) keys_.Share(tokens_);
  KeepBefore(static_cast<int>(same));
  if (!keys_.Adopt(before)) return {};
  const auto known = before.first(positions().size());
  tokens_.assign(known.begin(), known.end());
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
    if (keys_.n_waiting() == kMaxRows) LS_TRY(Settle());
    end = std::min(n_rows, begin + kMaxRows - keys_.n_waiting());
    waiting_states_.Append(states, rows.rows.subspan(Z(begin), Z(end - begin)));
    if (before_ != nullptr) {
      if (begin == 0) waiting_before_.Append(before.first);
      const int above = std::max(begin - 1, 0);
      waiting_before_.Append(before.states, rows.rows.subspan(Z(above), Z(end - 1 - above)));
    }
    for (int i = begin; i < end; ++i) keys_.Wait(rows.first + i);
  }
  if (n_rows <= rows.n_new) return {};
  LS_TRY(Settle());  // of a prompt
  keys_.Share(tokens_);
  return {};
}

Status BlockForward::Settle() {
  const int n_rows = keys_.n_waiting();
  if (n_rows == 0) return {};
  LS_ASSIGN(KvTransaction kept, keys_.cache().Begin(n_rows));
  const KvWriter writer = kept.Writer(0);
  places_.clear();
  float* const x = lane_->x();
  waiting_states_.rows().Copy(x);
  for (int i = 0; i < n_rows; ++i) {
    lane_->SetAngles(i, rope_, keys_.waiting()[Z(i)]);
    places_.push_back({.to = &writer, .slot = kept.slot() + i});
  }
  lane_->Run(n_rows, [&](DraftPass& pass) {
    if (before_ != nullptr) pass.Multiply(*before_, pass.Of(waiting_before_.row(0), width_), x, /*add=*/true);
    pass.StoreKeys(pass.Norm(x, norm_), *weights_, places_);
  });
  kept.CommitAll();
  keys_.MarkStored();
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
  const int begin = !sees_first_ && !positions().empty() && positions().front() == 0 ? 1 : 0;
  const int end = keys_.cache().length();
  for (const Row& row : rows) views_.push_back({.begin = begin, .end = end, .tail = row.tail});
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
