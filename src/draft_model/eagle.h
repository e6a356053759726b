// SPDX-License-Identifier: Apache-2.0
//
// EAGLE draft models: one layer that predicts from the target's hidden states (features) and tokens, as
// published for EAGLE-1 and 2 (arXiv 2401.15077, 2406.16858; one form of files) and for EAGLE-3 (2503.01840).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "draft/growing_drafter.h"
#include "draft/tree_growth.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_lane.h"
#include "draft_model/learned_draft.h"
#include "kv/kv_cache.h"
#include "kv/kv_slots.h"
#include "kv/reindexed_set.h"
#include "model/block.h"
#include "model/shared_parts.h"
#include "model/target.h"
#include "network/rope.h"

namespace longspec {

// Slot j holds feature f_j of position j and the token after it, x[j + 1]; what it computes predicts x[j +
// 2].
//   EAGLE    u = fc [E x ; f] + bias       z = u + attention(u)
//   EAGLE-3  g = fc [f of three layers]    z = g + attention([norm(E x) ; norm(g)])
//            or fc norm([f of three layers]), where a file has that norm
//   both     out = z + mlp(norm(z))
// `out` is the feature of the next slot of a draft (EAGLE-3: instead of g). EAGLE's logits are the target's
// head on `out` itself, EAGLE-3's a head of its own (or the target's, if it has none) on norm(out).
struct EagleModel : LearnedModel {
  std::string_view name;  // of its drafter
  DraftBlock block;
  Taps taps;                          // its features: the final hidden state, or the outputs of layers
  int64_t n_logits = 0, n_vocab = 0;  // of a row of its head; of the target

  DraftMatrix fc;              // (n_embd, fc_inputs * n_embd)
  std::vector<float> fc_bias;  // (n_embd), or empty
  DraftAttention attention;
  DraftMlp mlp;
  std::vector<float> mlp_norm;

  // EAGLE-3. Empty in EAGLE. `head` is its own or the target's, and of the tokens it has (empty: all).
  std::vector<float> token_norm, feature_norm, output_norm;
  std::vector<float> fused_norm;    // "norm_before_fc": of what fc reads, (n_taps * n_embd); or empty
  bool residual_is_normed = false;  // "norm_before_residual": z = norm(g) + ...
  DraftMatrix own_head;

  bool is_eagle3() const { return !token_norm.empty(); }
  // Hidden states that make a feature.
  int n_taps() const { return taps.final_hidden ? 1 : static_cast<int>(taps.hidden_layers.size()); }
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

 protected:
  // Of the layer whose tensors begin with `prefix` and whose attention reads `n_in` values.
  std::vector<DraftPart> LayerParts(const std::string& prefix, int64_t n_in);
};

struct Eagle1Model : LoadedFromFile<Eagle1Model, EagleModel> {
  static constexpr std::string_view kKind = "eagle";
  static const DraftKind kFile;
  static Result<Eagle1Model> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
};

struct Eagle3Model : LoadedFromFile<Eagle3Model, EagleModel> {
  static constexpr std::string_view kKind = "eagle3";
  static const DraftKind kFile;
  static Result<Eagle3Model> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  void Finish(const SharedParts& target);
};

// Layers whose outputs are an EAGLE-3 draft's features, else 1, L / 2 - 1 and L - 4 of L layers. Its
// configuration names them as eagle_aux_hidden_state_layer_ids: within eagle_config by their outputs, as
// SGLang, SpecForge and ModelOpt write it; beside it by inputs, as vLLM and speculators do, where j is what
// layer j reads: the output of layer j - 1. Exposed for tests.
Result<std::vector<int>> Eagle3Layers(const DraftCheckpoint& checkpoint, const ModelSizes& target);

// Tokens of an EAGLE-3 draft's head: i + d2t[i] for its row i, ascending. Empty: all of the target's. What
// d2t and t2d say must agree. Exposed for tests.
Result<std::vector<int32_t>> Eagle3Tokens(const DraftCheckpoint& checkpoint, int n_vocab);

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

// Running an EAGLE draft model for one sequence: the keys and values of its committed slots, one layer in a
// cache of its drafter's choice, and those of a tree's nodes beside them. A slot's keys depend on its own
// input alone, so slots of a prompt are stored without attention.
class EagleForward {
 public:
  // Rows of one pass; more are run in parts.
  static constexpr int kMaxRows = 32;

  static LaneSize Size(const EagleModel& model, int64_t n_logits);
  static std::shared_ptr<DraftLane> MakeLane(const EagleModel& model, const SharedParts& target);

  // `cache`: borrowed; of committed slots, one layer of DraftCacheLayout. They lie in order, whatever their
  // positions. Rows of a tree see those from `first_seen` on, or what `set` (borrowed) holds of them, if
  // there is one.
  EagleForward(std::shared_ptr<const EagleModel> model, KvCache* cache, int first_seen,
               std::shared_ptr<DraftLane> lane, const ReindexedSet* set = nullptr);

  // Stores the keys and values of committed slots that follow.
  Status Append(std::span<const EagleRow> rows);

  // Rows of this draft alone.
  Status Run(std::span<const EagleRow> rows, bool drafted, int k, std::vector<std::vector<TokenScore>>& next,
             float* outputs) {
    return EagleRows(this, rows, drafted, k, &next, outputs).RunAlone();
  }
  const EagleModel* model() const { return model_.get(); }

  // For tests: the logits of the last pass, (rows of it, n_logits).
  const float* logits() const { return lane_->logits(); }
  int n_logits() const { return static_cast<int>(model_->head.matrix.n_out()); }

  size_t bytes() const;  // without the cache

 private:
  friend EagleRows::ForwardRows;

  int n_rows() const { return static_cast<int>(rows_.size()); }
  int width() const { return model_->block.shape.n_embd; }

  Status Embed(std::span<const EagleRow> rows, bool drafted);
  DraftPass::Input Compose(DraftPass& pass, bool drafted);
  using Piece = RowPiece<EagleRows>;

  Status RunPass(std::span<const Piece> pieces);
  void PlanAttention(std::span<const Piece> pieces);
  AttentionSegment ViewRows(std::span<const EagleRow> rows);

  const std::shared_ptr<const EagleModel> model_;
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
  const std::shared_ptr<DraftLane> lane_;
};

}  // namespace longspec
