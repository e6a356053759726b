// SPDX-License-Identifier: Apache-2.0
//
// Running an EAGLE draft model for one sequence: the keys and values of its committed slots, one layer in a
// cache of its drafter's choice, and those of a tree's nodes beside them. A slot's keys depend on its own
// input alone, so slots of a prompt are stored without attention. One thread; uses the target's team, which
// must be free.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "base/aligned_buffer.h"
#include "draft/forward_rows.h"
#include "draft/tree_growth.h"
#include "draft_model/draft_scratch.h"
#include "draft_model/eagle_model.h"
#include "kv/kv_cache.h"
#include "kv/kv_slots.h"
#include "kv/reindexed_set.h"
#include "model/block.h"
#include "model/rope.h"
#include "model/shared_parts.h"

namespace longspec {

// A slot to run: a token, and the feature of the position before it.
struct EagleRow {
  int32_t token = 0;
  int position = 0;  // where it stands, for rotation: that of the feature, or one of a re-indexed cache
  // n_taps hidden states of the target, (n_embd) each; of a node that a draft made, one: its parent's output.
  std::array<const float*, 8> feature = {};
  std::span<const int32_t> path = {};  // of a tree: slots of its ancestors in depth order, then its own
};

class EagleForward;

// They see all committed slots and their paths, whose earlier slots have been run. The output of each
// (n_embd), the feature of rows below it, goes to `outputs`. `drafted`: their features are outputs of this
// model.
struct EagleRows final : ForwardRows<EagleRows, EagleForward, EagleRow> {
  EagleRows(EagleForward* of, std::span<const EagleRow> some, bool below, int n_best,
            std::vector<std::vector<TokenScore>>* to, float* features)
      : ForwardRows(of, some, n_best, to), drafted(below), outputs(features) {}

  Key key() const override;

  bool drafted;
  float* outputs;  // (rows, n_embd)
};

class EagleForward {
 public:
  // Rows of one pass; more are run in parts.
  static constexpr int kMaxRows = 32;

  struct Scratch : DraftScratch {
    Scratch(const EagleModel& model, const SharedParts& target);
    size_t bytes() const {
      return DraftScratch::bytes() + attention.bytes() + features.size() + tokens.size() + joined.size();
    }
    AttentionPlan attention;
    AlignedBuffer features;  // (rows, n_taps * n_embd), EAGLE: embeddings and features, (rows, 2 * n_embd)
    AlignedBuffer tokens;    // (rows, n_embd): embeddings, EAGLE-3
    AlignedBuffer joined;    // (rows, 2 * n_embd): what attention reads, EAGLE-3
  };
  static std::shared_ptr<Scratch> MakeScratch(const EagleModel& model, const SharedParts& target) {
    return std::make_shared<Scratch>(model, target);
  }

  // `cache`: borrowed; of committed slots, one layer of DraftCacheLayout. They lie in order, whatever their
  // positions. Rows of a tree see those from `first_seen` on, or what `set` (borrowed) holds of them, if
  // there is one. `scratch`: of this model; null: its own.
  EagleForward(std::shared_ptr<const EagleModel> model, const SharedParts& target, KvCache* cache,
               int first_seen, std::shared_ptr<Scratch> scratch = nullptr, const ReindexedSet* set = nullptr);

  // Stores the keys and values of committed slots that follow.
  Status Append(std::span<const EagleRow> rows);

  // Rows of this draft alone.
  Status Run(std::span<const EagleRow> rows, bool drafted, int k, std::vector<std::vector<TokenScore>>& next,
             float* outputs) {
    return EagleRows(this, rows, drafted, k, &next, outputs).RunAlone();
  }
  const EagleModel* model() const { return model_.get(); }

  // For tests: the logits of the last pass, (rows of it, n_logits).
  const float* logits() const { return scratch_->logits.as<float>(); }
  int n_logits() const { return static_cast<int>(model_->head.matrix.n_out); }

  size_t bytes() const;  // without the cache
  // Scratch::bytes(), for one thread.
  static size_t ScratchBytes(const EagleFacts& facts);

 private:
  friend EagleRows::ForwardRows;

  int n_rows() const { return static_cast<int>(rows_.size()); }
  int width() const { return model_->block.shape.n_embd; }

  Status Embed(std::span<const EagleRow> rows, bool drafted);
  // EAGLE-3's norm of what fc reads, in place, if it has one.
  void NormaliseFused(ThreadTeam::Worker& worker, float* features, int width) const;
  AttentionInput Compose(ThreadTeam::Worker& worker, bool drafted);
  AttentionWeights Attention() const;
  using Piece = RowPiece<EagleRows>;

  Status RunPass(std::span<const Piece> pieces);
  void PlanAttention(std::span<const Piece> pieces);
  AttentionSegment ViewRows(std::span<const EagleRow> rows);
  void Head(ThreadTeam::Worker& worker, int k, std::span<std::vector<TokenScore>> next);

  const std::shared_ptr<const EagleModel> model_;
  const SharedParts target_;
  const RopeTable rope_;
  KvCache* const cache_;
  const int first_seen_;
  const ReindexedSet* const set_;

  // Of the tree.
  KvSlots tree_;
  KvWriter tree_writer_;

  // Of one pass.
  std::vector<EagleRow> rows_;
  std::vector<RowView> views_;  // of its own rows
  std::vector<AttentionSegment> segments_;
  std::vector<std::vector<TokenScore>> next_;
  std::vector<RowPlace> places_;
  const std::shared_ptr<Scratch> scratch_;
  AttentionPlan& attention_ = scratch_->attention;
  Workspace& work_ = scratch_->work;
};

}  // namespace longspec
