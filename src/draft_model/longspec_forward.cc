// SPDX-License-Identifier: Apache-2.0
#include "draft_model/longspec_forward.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft_model/embed_token.h"
#include "draft_model/head_pass.h"

namespace longspec {
namespace {

// Of attention's partial states, whatever the context: the draft's memory is constant.
constexpr size_t kLongspecStateBytes = 1 << 20;

InputForms FormsOf(const LongspecModel& model) {
  InputForms forms;
  for (const kernels::PackedWeights* w :
       {&model.self_q, &model.self_k, &model.self_v, &model.self_o, &model.cross_q, &model.cross_o,
        &model.gate, &model.up, &model.down}) {
    forms.Add(w->matrix());
  }
  forms.Add(model.head.matrix);
  return forms;
}

AttentionWeights SelfOf(const LongspecModel& m) {
  return {.norm = m.self_norm,
          .q = &m.self_q.matrix(),
          .k = &m.self_k.matrix(),
          .v = &m.self_v.matrix(),
          .output = &m.self_o.matrix(),
          .q_bias = m.self_q_bias,
          .k_bias = m.self_k_bias,
          .v_bias = m.self_v_bias};
}

// Over keys and values that are there: only the query is made.
AttentionWeights CrossOf(const LongspecModel& m) {
  return {.norm = m.cross_norm,
          .q = &m.cross_q.matrix(),
          .output = &m.cross_o.matrix(),
          .q_bias = m.cross_q_bias};
}

MlpWeights MlpOf(const LongspecModel& m) {
  return {.norm = m.mlp_norm, .gate = &m.gate.matrix(), .up = &m.up.matrix(), .down = &m.down.matrix()};
}

}  // namespace

LongspecForward::Scratch::Scratch(const LongspecModel& model, const SharedParts& target)
    : DraftScratch(target, LongspecModel::Block(*target.config, model.n_ff).shape, FormsOf(model), kMaxRows,
                   model.head.matrix.n_out),
      self(target.kernels, target.config->attention(), target.team->size(), kLongspecStateBytes),
      cross(target.kernels, target.config->attention(), target.team->size(), kLongspecStateBytes) {}

LongspecForward::LongspecForward(std::shared_ptr<const LongspecModel> model, const SharedParts& target,
                                 const KvLayout& layout, std::shared_ptr<Scratch> scratch)
    : model_(std::move(model)),
      target_(target),
      rope_(target.config->rope),
      n_ring_chunks_(RingChunks(model_->window)),
      ring_(layout, 1),
      tree_(layout, 1),
      scratch_(scratch != nullptr ? std::move(scratch) : std::make_shared<Scratch>(*model_, target)) {
  ring_.Reserve(n_ring_chunks() * kKvChunk);
  ring_writer_ = ring_.writer();
}

size_t LongspecForward::bytes() const { return ring_.bytes() + tree_.bytes() + scratch_->bytes(); }

size_t LongspecForward::ScratchBytes(const LlamaConfig& target, int n_ff, int64_t n_logits) {
  const BlockShape shape = LongspecModel::Block(target, n_ff).shape;
  return Z(kMaxRows) * (Workspace::RowBytes(shape, kAllInputForms) + Z(n_logits) * sizeof(float)) +
         2 * kLongspecStateBytes;
}

// The rows of a pass: their embeddings and rotary angles.
Status LongspecForward::Embed(std::span<const LongspecRow> rows) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  rows_.assign(rows.begin(), rows.end());
  const LlamaConfig& c = *target_.config;
  for (size_t r = 0; r < rows_.size(); ++r) {
    LS_TRY(EmbedToken(target_, rows_[r].token, work_.x.as<float>() + r * Z(c.n_embd)));
    rope_.Row(rows_[r].position, work_.cos_sin.as<float>() + r * Z(c.rope.n_rot));
  }
  return {};
}

// Only keys and values are computed: no attention runs over the prompt.
Result<int> LongspecForward::Extend(std::span<const int32_t> committed) {
  const auto end = static_cast<int>(committed.size());
  if (ring_end_ > end) Reset();
  const int first = std::max({ring_end_, end - model_->window - 1, 0});
  std::vector<LongspecRow> rows;
  for (int begin = first; begin < end; begin += kMaxRows) {
    rows.clear();
    for (int p = begin; p < std::min(end, begin + kMaxRows); ++p) {
      rows.push_back({.token = committed[Z(p)], .position = p});
    }
    LS_TRY(Embed(rows));
    self_places_.clear();
    PlaceKeys(rows, &self_places_);
    target_.team->Run(
        [&](ThreadTeam::Worker& worker) { StoreKeys(worker, work_, SelfOf(*model_), self_places_, 0); });
  }
  ring_end_ = end;
  return end - first;
}

void LongspecForward::ReserveSlots(int n_slots) {
  tree_.Reserve(n_slots);
  tree_writer_ = tree_.writer();
}

MeetingRows::Key LongspecRows::key() const { return {.model = forward->model()}; }

Status LongspecForward::RunPass(std::span<const Piece> pieces) {
  std::vector<LongspecRow> rows;
  for (const Piece& piece : pieces) rows.insert(rows.end(), piece.rows().begin(), piece.rows().end());
  LS_TRY(Embed(rows));
  PlanAttention(pieces);
  next_.resize(rows.size());
  const int k = MostWanted(pieces);
  target_.team->Run([&](ThreadTeam::Worker& worker) {
    AddAttention(worker, work_, SelfOf(*model_), self_places_, 0, self_);
    AddAttention(worker, work_, CrossOf(*model_), cross_places_, 0, cross_);
    AddMlp(worker, work_, MlpOf(*model_), n_rows());
    Head(worker, k, next_);
  });
  HandOut(pieces, std::span(next_));
  return {};
}

// What each of its rows sees. A node comes after the last committed token, which is the root and in the ring
// as well. Ring and path together reach back as far as the window: position - window.
void LongspecForward::ViewRows(std::span<const LongspecRow> rows, const KvSpan& target,
                               std::vector<AttentionSegment>* self, std::vector<AttentionSegment>* cross) {
  self_views_.clear();
  int n_slots = 0;
  for (const LongspecRow& row : rows) {
    const int end = std::min(row.position + 1, ring_end_);
    const size_t n_path = std::min(row.path.size(), Z(model_->window) + 1);
    self_views_.push_back({.begin = std::clamp(row.position - model_->window, 0, end),
                           .end = end,
                           .tail = row.path.last(n_path)});
    for (const int32_t slot : row.path) n_slots = std::max(n_slots, slot + 1);
  }
  cross_views_.assign(rows.size(), {.begin = 0, .end = target.n_committed});
  ReserveSlots(n_slots);
  self->push_back({.stored = ring_.span(),
                   .n_ring_chunks = n_ring_chunks(),
                   .tail = tree_.span(),
                   .tail_begin = 0,
                   .tail_end = n_slots,
                   .rows = self_views_});
  cross->push_back({.stored = target, .rows = cross_views_});
}

void LongspecForward::PlanAttention(std::span<const Piece> pieces) {
  self_segments_.clear();
  cross_segments_.clear();
  self_places_.clear();
  cross_places_.clear();
  for (const Piece& piece : pieces) {
    LongspecForward& own = *piece.of->forward;
    own.ViewRows(piece.rows(), piece.of->target, &self_segments_, &cross_segments_);
    own.PlaceKeys(piece.rows(), &self_places_);
  }
  self_.Plan(self_segments_);
  cross_.Plan(cross_segments_);
  for (int r = 0; r < n_rows(); ++r) {
    self_places_[Z(r)].query = self_.Place(r);
    cross_places_.push_back({.query = cross_.Place(r)});
  }
}

// Keys and values go into the ring or the tree.
void LongspecForward::PlaceKeys(std::span<const LongspecRow> rows, std::vector<RowPlace>* places) const {
  for (const LongspecRow& row : rows) {
    const bool in_ring = row.slot < 0;
    places->push_back({.to = in_ring ? &ring_writer_ : &tree_writer_,
                       .slot = in_ring ? row.position % (n_ring_chunks() * kKvChunk) : row.slot});
  }
}

// The residual stream meets the head as it is: no final norm, neither the draft's nor the target's.
void LongspecForward::Head(ThreadTeam::Worker& worker, int k, std::span<std::vector<TokenScore>> next) {
  const float* x = work_.x.as<float>();
  Convert(worker, work_, x, target_.config->n_embd, n_rows());
  worker.Barrier();
  TopOfHead(worker, work_, model_->head, x, n_rows(), scratch_->logits.as<float>(), k, next);
}

}  // namespace longspec
