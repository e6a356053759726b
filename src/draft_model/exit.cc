// SPDX-License-Identifier: Apache-2.0
//
// Early exit, or self-speculation (LayerSkip, arXiv 2404.16710; Kangaroo, arXiv 2404.18911): trees grown by a
// block of the draft's own after the target's first layers. A guess passes those layers as it is drafted, and
// since a row's result does not depend on the rows beside it, verification goes on where they end
// (model/layer_prefix.h): nothing of the target is computed twice. A draft may read the target's final state
// of the token before as well, as EAGLE does, and its own output further down; as with EAGLE, that of a
// position which was computed while no such draft read along is not to be had.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/block_forward.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_models.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"
#include "draft_model/trained_range.h"
#include "kv/chunk_pool.h"

namespace longspec {
namespace {

// A block of the draft's own after the target's first layers.
// With h the target's residual stream after layer `exit_layer` at a position:
//   y = h + self(norm(h)); z = y + mlp(norm(y)); logits of the next token = W norm(z)
// with the target's head W, or rows of it. Keys and values at a position are made of h there. A draft that
// has `feature` reads h + feature f in the place of h, with f the target's final hidden state at the position
// before it, and below the root of a tree its own norm(z) there; nothing sees position 0.
struct ExitModel : LoadedFromFile<ExitModel> {
  static constexpr std::string_view kKind = "exit";
  static const DraftKind kFile;
  static Result<ExitModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  int exit_layer = 0;  // after which it reads, 0-based ("longspec_exit_layer")
  DraftLayer layer;
  bool reads_feature = false;
  DraftMatrix feature;  // (n_embd, n_embd)
  std::vector<float> output_norm;
};

constexpr char kExitBlock[] = "layers.0";
constexpr char kFeature[] = "feature.weight";

Result<int> ReadExitLayer(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_ASSIGN(const int layer, checkpoint.keys.Index("longspec_exit_layer", -1));
  if (layer < 0) {
    return Unsupported(checkpoint.path +
                       ": config.json does not say after which layer of the target the draft begins "
                       "(\"longspec_exit_layer\", 0-based)");
  }
  if (layer >= target.n_layer) {
    return DraftMisfit(checkpoint, "reads after layer", std::to_string(layer),
                       std::to_string(target.n_layer) + " layers");
  }
  return layer;
}

constexpr DraftKind ExitModel::kFile = {
    .name = kKind,
    .recognise = [](const DraftCheckpoint& c) { return c.keys.Has("longspec_exit_layer"); },
    .tensors = TensorsOf<ExitModel>};

Result<ExitModel> ExitModel::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  ExitModel model = Of(checkpoint);
  LS_ASSIGN(model.exit_layer, ReadExitLayer(checkpoint, target));
  LS_ASSIGN(model.layer.block, ReadDraftLayerBlock(checkpoint, target, kExitBlock));
  model.reads_feature = checkpoint.Find(kFeature) != nullptr;
  return model;
}

std::vector<DraftPart> ExitModel::Parts() {
  const int64_t d = layer.block.shape.n_embd;
  std::vector<DraftPart> parts = layer.Parts(kExitBlock, "self_attn");
  parts.push_back({.tensor = kFeature, .n_in = d, .n_out = d, .matrix = &feature, .required = false});
  parts.push_back({.tensor = "norm.weight", .n_in = d, .vector = &output_norm});
  return parts;
}

// Its block's; keys and values of guesses in the target's first layers; and attention of the pass in which
// rows join that have passed those.
DraftMemory ExitModel::Working(const SpeculationOptions&, const TargetFacts& target, int64_t n_logits) const {
  DraftMemory plan = BlockMemory(layer.block, target, n_logits);
  plan.with_target += KvChunkBytes(target.cache, exit_layer + 1);
  plan.fixed += AttentionPlan::MostBytes(target.sizes.attention(), 1, kKvChunk);
  // States that a row reads besides: of those that wait or run, and of every node of a tree.
  if (reads_feature)
    plan.fixed += (2 * Z(BlockForward::kMaxRows) + kKvChunk) * Z(target.sizes.n_embd) * sizeof(float);
  return plan;
}

// A guess to run, below a row of the prefix that has been run.
struct ExitRow {
  int32_t token = 0;
  int32_t parent = -1;  // -1: it is the root
};

class ExitForward;

// Row i of the prefix is slot i of the block's own keys and values.
struct ExitRows final : ForwardRows<ExitRows, ExitForward, ExitRow> {
  using ForwardRows::ForwardRows;
  Key key() const override;
};

// Running guesses through the target's first layers, and through the draft's block behind them.
class ExitForward {
 public:
  static constexpr int kMaxRows = BlockForward::kMaxRows;

  static std::shared_ptr<DraftLane> MakeLane(const ExitModel& model, const SharedParts& target) {
    return BlockForward::MakeLane(target, model.layer, model.head,
                                  model.reads_feature ? &model.feature : nullptr);
  }

  ExitForward(std::shared_ptr<const ExitModel> model, Target& target, const KvCache& cache,
              std::shared_ptr<DraftKeys> keys, std::shared_ptr<DraftLane> lane)
      : model_(std::move(model)),
        target_(target),
        cache_(cache),
        block_(model_->layer.block, std::move(keys), cache.capacity(), std::move(lane),
               /*sees_first=*/!model_->reads_feature),
        prefix_(target.NewPrefix(cache.Span(0).layout, model_->exit_layer + 1)),
        feature_(model_->reads_feature ? Z(width()) : 0) {}

  const ExitModel* model() const { return model_.get(); }
  const BlockForward& block() const { return block_; }
  const LayerPrefix& prefix() const { return *prefix_; }

  Status Follow(std::span<const int32_t> committed) {
    prefix_->Clear(0);
    const auto same = std::ranges::mismatch(block_.tokens(), committed).in1 - block_.tokens().begin();
    if (last_ >= same) last_ = -1;
    return block_.Follow(committed);
  }
  Status Read(CommittedRows rows) {
    prefix_->Clear(0);
    if (rows.output == nullptr || rows.rows.empty()) return {};
    const DraftLayer& layer = model_->layer;
    const StateRows& states = rows.output->hidden[0];
    if (!model_->reads_feature) return block_.Read(rows, states, layer.attention, layer.attention_norm);
    const StateRows& finals = rows.output->final_hidden;
    const StateRows newest = finals.From(rows.rows.back(), 1);
    const int last = rows.first + static_cast<int>(rows.rows.size()) - 1;
    StateBefore before = {.w = &model_->feature, .first = {feature_.data(), 1, width()}, .states = finals};
    if (rows.first == 0) {
      std::ranges::fill(feature_, 0.0F);
    } else if (rows.first != last_ + 1) {  // what comes before it is not known: it was read once, or is not
      before.first = finals.From(rows.rows[0], 1);
      rows.rows = rows.rows.subspan(1);
      ++rows.first;
    }
    LS_TRY(block_.Read(rows, states, layer.attention, layer.attention_norm, before));
    newest.Copy(feature_.data());
    last_ = last;
    return {};
  }
  // Whether a tree may have its root at this position.
  bool CanBegin(int root) const { return !model_->reads_feature || (root > 0 && last_ == root - 1); }
  // Whether a tree may have its root behind the first n positions of this text, once it is told of that.
  bool CanGoOn(std::span<const int32_t> committed, int n) const {
    return !model_->reads_feature || (last_ + 1 == n && IsBeginning(block_.tokens(), committed, n));
  }
  void ClearTree() {
    prefix_->Clear(cache_.length());
    outputs_.clear();
    block_.ClearTree();
  }
  Status Settle() { return block_.Settle(); }

  size_t bytes() const {
    return block_.bytes() + prefix_->bytes() +
           (feature_.capacity() + inputs_.capacity() + outputs_.capacity()) * sizeof(float);
  }

 private:
  friend ExitRows::ForwardRows;

  int width() const { return model_->layer.block.shape.n_embd; }

  // What the next rows of this one are, before and after they have run through the first layers.
  PrefixSegment Begin(std::span<const ExitRow> rows) {
    tokens_.clear();
    parents_.clear();
    for (const ExitRow& row : rows) {
      tokens_.push_back(row.token);
      parents_.push_back(row.parent);
    }
    return {.cache = &cache_, .tokens = tokens_, .parents = parents_, .prefix = prefix_.get()};
  }
  BlockForward::Part Place(size_t n_rows) {
    rows_.clear();
    for (int row = prefix_->n_rows() - static_cast<int>(n_rows); row < prefix_->n_rows(); ++row) {
      LS_CHECK(block_.NewSlot() == row);
      rows_.push_back({.position = prefix_->position(row), .slot = row, .tail = prefix_->path(row)});
    }
    return {.of = &block_, .rows = rows_};
  }

  // Its rows of the pass that `pass` runs, from row r on: states after the first layers, and what the draft
  // reads beside them.
  void AddInputs(ExitForward* pass, int* r) {
    const auto d = Z(width());
    const auto n = static_cast<int>(tokens_.size());
    prefix_->hidden().From(prefix_->n_rows() - n, n).Copy(pass->block_.lane().x(*r));
    *r += n;
    for (size_t i = 0; i < tokens_.size() && model_->reads_feature; ++i) {
      const float* before = parents_[i] < 0 ? feature_.data() : outputs_.data() + Z(parents_[i]) * d;
      pass->inputs_.insert(pass->inputs_.end(), before, before + d);
    }
  }
  // For the rows below them.
  void KeepOutputs(const ExitForward& pass, int* r) {
    for (size_t i = 0; i < tokens_.size() && model_->reads_feature; ++i) {
      const float* output = pass.block_.lane().normed((*r)++);
      outputs_.insert(outputs_.end(), output, output + width());
    }
  }

  // Of several drafts.
  Status RunPass(std::span<const RowPiece<ExitRows>> pieces) {
    segments_.clear();
    for (const auto& piece : pieces) segments_.push_back(piece.of->forward->Begin(piece.rows()));
    LS_TRY(target_.RunPrefix(segments_));
    parts_.clear();
    for (const auto& piece : pieces) parts_.push_back(piece.of->forward->Place(piece.n));
    block_.Place(parts_);
    int r = 0;
    inputs_.clear();
    for (const auto& piece : pieces) piece.of->forward->AddInputs(this, &r);
    next_.resize(Z(r));
    const int k = MostWanted(pieces);
    float* const x = block_.lane().x();
    const DraftLayer& layer = model_->layer;
    block_.lane().Run(r, [&](DraftPass& pass) {
      if (model_->reads_feature) {
        pass.Multiply(model_->feature, pass.Of(inputs_.data(), width()), x, /*add=*/true);
      }
      pass.AddAttention(pass.Norm(x, layer.attention_norm), layer.attention, block_.places(),
                        block_.attention());
      pass.AddMlp(layer.mlp, layer.mlp_norm);
      pass.Top(pass.Norm(x, model_->output_norm), model_->head, k, next_);
    });
    r = 0;
    for (const auto& piece : pieces) piece.of->forward->KeepOutputs(*this, &r);
    HandOut(pieces, std::span(next_));
    return {};
  }

  const std::shared_ptr<const ExitModel> model_;
  Target& target_;
  const KvCache& cache_;
  BlockForward block_;
  const std::unique_ptr<LayerPrefix> prefix_;  // the tree that is being grown, or that was last
  // Where the draft reads final states: that of position last_, the newest that was read (-1: it is not
  // known), and what stands for them below the root, by row of the prefix, (n_rows, n_embd).
  int last_ = -1;
  std::vector<float> feature_, outputs_;

  // Of one pass, its own rows.
  std::vector<int32_t> tokens_, parents_;
  std::vector<BlockForward::Row> rows_;
  // And of all.
  std::vector<PrefixSegment> segments_;
  std::vector<BlockForward::Part> parts_;
  std::vector<float> inputs_;  // final states or outputs, (n_rows, n_embd)
  std::vector<std::vector<TokenScore>> next_;
};

MeetingRows::Key ExitRows::key() const { return {.model = forward->model()}; }

class ExitDrafter final : public GrowingDrafter {
 public:
  ExitDrafter(const std::shared_ptr<const ExitModel>& model, TreeShape shape, Target& target,
              const KvCache& cache, std::shared_ptr<DraftKeys> keys, std::shared_ptr<DraftLane> lane)
      : GrowingDrafter(std::move(shape)),
        cache_(cache),
        range_(model->path, model->trained_positions),
        forward_(model, target, cache, std::move(keys), std::move(lane)) {}

  std::string_view name() const override { return ExitModel::kKind; }
  bool uses_dice() const override { return true; }
  Taps taps() const override {
    const ExitModel& model = *forward_.model();
    return {.hidden_layers = {model.exit_layer}, .final_hidden = model.reads_feature};
  }
  int overlap(std::span<const int32_t> committed, int n) const override {
    return forward_.CanGoOn(committed, n) ? 0 : std::min(n, 1);
  }
  const LayerPrefix* prefix() const override {
    return forward_.prefix().n_rows() > 0 ? &forward_.prefix() : nullptr;
  }

  Status Follow(std::span<const int32_t> committed) override { return forward_.Follow(committed); }
  Status Read(const CommittedRows& rows) override { return forward_.Read(rows); }

  size_t bytes() const override { return forward_.bytes(); }
  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    forward_.ClearTree();
    row_of_.clear();
    if (!HoldsBeforeLast(cache_, committed)) return 0;
    if (!forward_.CanBegin(static_cast<int>(committed.size()) - 1)) return 0;
    const int left = range_.LevelsToGrow(committed.size());
    if (left <= 0) return left;
    LS_TRY(forward_.Settle());
    range_.Sees(forward_.block().positions().size(), committed.size() - 1);
    return left;
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    row_of_.resize(nodes.size(), -1);
    rows_.clear();
    for (const int32_t i : which) {
      const GrownNode& node = nodes[Z(i)];
      row_of_[Z(i)] = forward_.prefix().n_rows() + static_cast<int>(rows_.size());
      rows_.push_back({.token = node.token, .parent = node.parent < 0 ? -1 : row_of_[Z(node.parent)]});
    }
    ExitRows rows(&forward_, rows_, k, &next);
    co_return co_await Meet(rows);
  }

  const KvCache& cache_;
  TrainedRange range_;
  ExitForward forward_;

  // The tree that is being grown.
  std::vector<int32_t> row_of_;  // of the prefix, per node; -1: it was not run
  std::vector<ExitRow> rows_;
};

DrafterResult MakeExit(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<ExitModel>(options, context, "beam", [&](auto model, TreeShape shape) {
    auto keys = LearnedKeys(options, context, model->layer.block);
    auto lane = LearnedLane<ExitForward>(options, context, *model);
    return std::make_unique<ExitDrafter>(std::move(model), std::move(shape), *context.target, *context.cache,
                                         std::move(keys), std::move(lane));
  });
}

}  // namespace

constexpr DrafterEntry kExitDrafter = LearnedEntry<ExitModel>(
    {.aliases = {"early-exit"},
     .summary = "the guesses of a block after the model's first layers, which verification goes on from",
     .reads_states = true,
     .make = MakeExit});

}  // namespace longspec
