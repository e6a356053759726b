// SPDX-License-Identifier: Apache-2.0
#include "draft_model/eagle_forward.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft_model/embed_token.h"
#include "draft_model/head_pass.h"

namespace longspec {
namespace {

constexpr size_t kEagleStateBytes = 1 << 20;  // of attention's partial states, whatever the context

// fc reads two or more hidden states, EAGLE-3's attention two.
BlockShape ShapeOf(const DraftBlock& block, int n_taps) {
  BlockShape shape = block.shape;
  shape.n_other = std::max(2, n_taps) * shape.n_embd;
  return shape;
}

InputForms FormsOf(const EagleModel& model) {
  InputForms forms;
  for (const kernels::PackedWeights* w :
       {&model.fc, &model.q, &model.k, &model.v, &model.o, &model.gate, &model.up, &model.down}) {
    forms.Add(w->matrix());
  }
  forms.Add(model.head.matrix);
  return forms;
}

AlignedBuffer Floats(int64_t n) { return AlignedBuffer(Z(n) * sizeof(float)); }

}  // namespace

EagleForward::Scratch::Scratch(const EagleModel& model, const SharedParts& target)
    : DraftScratch(target, ShapeOf(model.block, model.n_taps()), FormsOf(model), kMaxRows,
                   model.head.matrix.n_out),
      attention(target.kernels, model.block.attention(), target.team->size(), kEagleStateBytes),
      features(Floats(int64_t{kMaxRows} * work.shape.n_other)),
      tokens(Floats(int64_t{kMaxRows} * work.shape.n_embd)),
      joined(Floats(int64_t{kMaxRows} * 2 * work.shape.n_embd)) {}

EagleForward::EagleForward(std::shared_ptr<const EagleModel> model, const SharedParts& target, KvCache* cache,
                           int first_seen, std::shared_ptr<Scratch> scratch, const ReindexedSet* set)
    : model_(std::move(model)),
      target_(target),
      rope_(model_->block.rope),
      cache_(cache),
      first_seen_(first_seen),
      set_(set),
      tree_(cache->Span(0).layout, 1),
      scratch_(scratch != nullptr ? std::move(scratch) : MakeScratch(*model_, target)) {}

size_t EagleForward::bytes() const { return tree_.bytes() + scratch_->bytes(); }

size_t EagleForward::ScratchBytes(const EagleFacts& facts) {
  const BlockShape shape = ShapeOf(facts.block, facts.n_taps);
  const int64_t floats = shape.n_other + 3 * shape.n_embd + facts.n_logits;
  return Z(kMaxRows) * (Workspace::RowBytes(shape, kAllInputForms) + Z(floats) * sizeof(float)) +
         kEagleStateBytes;
}

// The rows of a pass: rotary angles, and their embeddings and features where the first product reads them.
Status EagleForward::Embed(std::span<const EagleRow> rows, bool drafted) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  rows_.assign(rows.begin(), rows.end());
  const size_t d = Z(width()), n_taps = Z(model_->n_taps());
  for (size_t r = 0; r < rows_.size(); ++r) {
    const EagleRow& row = rows_[r];
    float* features = scratch_->features.as<float>();
    float* token = scratch_->tokens.as<float>() + r * d;
    float* x = work_.x.as<float>() + r * d;
    if (!model_->is_eagle3()) {
      token = features + r * 2 * d;
      std::memcpy(token + d, row.feature[0], d * sizeof(float));
      if (!model_->fc_bias.empty()) std::memcpy(x, model_->fc_bias.data(), d * sizeof(float));
    } else if (drafted) {
      std::memcpy(x, row.feature[0], d * sizeof(float));
    } else {
      for (size_t tap = 0; tap < n_taps; ++tap) {
        std::memcpy(features + (r * n_taps + tap) * d, row.feature[tap], d * sizeof(float));
      }
    }
    LS_TRY(EmbedToken(target_, row.token, token));
    rope_.Row(row.position, work_.cos_sin.as<float>() + r * Z(model_->block.rope.n_rot));
  }
  return {};
}

void EagleForward::NormaliseFused(ThreadTeam::Worker& worker, float* features, int width) const {
  if (model_->fused_norm.empty()) return;
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    float* row = features + Z(r) * Z(width);
    target_.kernels->rms_norm(row, model_->fused_norm.data(), width, work_.shape.rms_eps, row);
  }
  worker.Barrier();
}

// The residual stream in work_.x, and what attention reads, both whole after a barrier.
AttentionInput EagleForward::Compose(ThreadTeam::Worker& worker, bool drafted) {
  const int d = width(), n_features = model_->is_eagle3() ? model_->n_taps() : 2;
  const bool through_fc = !model_->is_eagle3() || !drafted;
  float* x = work_.x.as<float>();
  if (through_fc) {
    float* features = scratch_->features.as<float>();
    NormaliseFused(worker, features, n_features * d);
    Convert(worker, work_, features, n_features * d, n_rows());
    worker.Barrier();
    const std::array fc = {LinearJob{&model_->fc.matrix(), x, !model_->fc_bias.empty()}};
    Project(worker, work_, fc, features, n_features * d, n_rows());
    worker.Barrier();
  }
  if (!model_->is_eagle3()) {
    Convert(worker, work_, x, d, n_rows());
    return {x, d};
  }
  float* joined = scratch_->joined.as<float>();
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    float* token = joined + Z(r) * 2 * Z(d);
    float* feature = token + d;
    float* residual = x + Z(r) * Z(d);
    const float eps = work_.shape.rms_eps;
    target_.kernels->rms_norm(scratch_->tokens.as<float>() + Z(r) * Z(d), model_->token_norm.data(), d, eps,
                              token);
    target_.kernels->rms_norm(residual, model_->feature_norm.data(), d, eps, feature);
    if (model_->residual_is_normed) std::memcpy(residual, feature, Z(d) * sizeof(float));
    ConvertRow(work_, joined, 2 * d, r);
  }
  return {joined, 2 * d};
}

AttentionWeights EagleForward::Attention() const {
  return {.q = &model_->q.matrix(),
          .k = &model_->k.matrix(),
          .v = &model_->v.matrix(),
          .output = &model_->o.matrix(),
          .q_bias = model_->q_bias,
          .k_bias = model_->k_bias,
          .v_bias = model_->v_bias};
}

Status EagleForward::Append(std::span<const EagleRow> rows) {
  for (size_t begin = 0; begin < rows.size(); begin += Z(kMaxRows)) {
    const auto part = rows.subspan(begin, std::min(Z(kMaxRows), rows.size() - begin));
    LS_TRY(Embed(part, /*drafted=*/false));
    LS_ASSIGN(KvTransaction slots, cache_->Begin(n_rows()));
    const KvWriter writer = slots.Writer(0);
    places_.clear();
    for (int r = 0; r < n_rows(); ++r) places_.push_back({.to = &writer, .slot = slots.slot() + r});
    target_.team->Run([&](ThreadTeam::Worker& worker) {
      const AttentionInput input = Compose(worker, /*drafted=*/false);
      worker.Barrier();
      StoreKeysOf(worker, work_, input, Attention(), places_, 0);
    });
    slots.CommitAll();
  }
  return {};
}

MeetingRows::Key EagleRows::key() const { return {.model = forward->model(), .form = drafted ? 1 : 0}; }

Status EagleForward::RunPass(std::span<const Piece> pieces) {
  std::vector<EagleRow> rows;
  for (const Piece& piece : pieces) rows.insert(rows.end(), piece.rows().begin(), piece.rows().end());
  const bool drafted = pieces.front().of->drafted;
  LS_TRY(Embed(rows, drafted));
  PlanAttention(pieces);
  const MlpWeights mlp = {.norm = model_->mlp_norm,
                          .gate = &model_->gate.matrix(),
                          .up = &model_->up.matrix(),
                          .down = &model_->down.matrix()};
  next_.resize(rows.size());
  const int k = MostWanted(pieces);
  target_.team->Run([&](ThreadTeam::Worker& worker) {
    const AttentionInput input = Compose(worker, drafted);
    worker.Barrier();
    AddAttentionOf(worker, work_, input, Attention(), places_, 0, attention_);
    AddMlp(worker, work_, mlp, n_rows());
    Head(worker, k, next_);
  });
  const float* x = work_.x.as<float>();
  for (const Piece& piece : pieces) {
    std::memcpy(piece.of->outputs + piece.begin * Z(width()), x, piece.n * Z(width()) * sizeof(float));
    x += piece.n * Z(width());
  }
  HandOut(pieces, std::span(next_));
  return {};
}

AttentionSegment EagleForward::ViewRows(std::span<const EagleRow> rows) {
  int n_slots = 0;
  const int n_stored = set_ != nullptr ? set_->n_slots() : cache_->n_slots();
  const int first_seen = set_ != nullptr ? 0 : std::min(first_seen_, n_stored);
  views_.clear();
  for (const EagleRow& row : rows) {
    LS_CHECK(!row.path.empty());
    views_.push_back({.begin = first_seen, .end = n_stored, .tail = row.path});
    for (const int32_t slot : row.path) n_slots = std::max(n_slots, slot + 1);
  }
  tree_.Reserve(n_slots);
  tree_writer_ = tree_.writer();
  const KvSpan stored = set_ != nullptr ? set_->Span(0) : cache_->Span(0);
  return {.stored = stored, .tail = tree_.span(), .tail_begin = 0, .tail_end = n_slots, .rows = views_};
}

void EagleForward::PlanAttention(std::span<const Piece> pieces) {
  segments_.clear();
  for (const Piece& piece : pieces) segments_.push_back(piece.of->forward->ViewRows(piece.rows()));
  attention_.Plan(segments_);
  places_.clear();
  for (const Piece& piece : pieces) {
    for (const EagleRow& row : piece.rows()) {
      const auto r = static_cast<int>(places_.size());
      places_.push_back(
          {.query = attention_.Place(r), .to = &piece.of->forward->tree_writer_, .slot = row.path.back()});
    }
  }
}

void EagleForward::Head(ThreadTeam::Worker& worker, int k, std::span<std::vector<TokenScore>> next) {
  const float* x = work_.x.as<float>();
  if (model_->is_eagle3()) {
    Normalise(worker, work_, x, model_->output_norm, n_rows());
    x = work_.normed.as<float>();
  } else {
    Convert(worker, work_, x, width(), n_rows());
  }
  worker.Barrier();
  TopOfHead(worker, work_, model_->head, x, n_rows(), scratch_->logits.as<float>(), k, next);
}

}  // namespace longspec
