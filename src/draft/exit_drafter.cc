// SPDX-License-Identifier: Apache-2.0
//
// Early exit, or self-speculation (LayerSkip, arXiv 2404.16710; Kangaroo, arXiv 2404.18911): trees grown by a
// block of the draft's own after the target's first layers. A guess passes those layers as it is drafted, and
// since a row's result does not depend on the rows beside it, verification goes on where they end
// (model/layer_prefix.h): nothing of the target is computed twice.
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/exit_model.h"
#include "draft/forward_rows.h"
#include "draft/growing_drafter.h"
#include "draft/learned_draft.h"
#include "draft/pass_meeting.h"
#include "draft/registry.h"
#include "draft/state_block.h"
#include "draft/trained_range.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "kv/chunk_pool.h"

namespace longspec {
namespace {

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
  static constexpr int kMaxRows = StateBlock::kMaxRows;

  using Scratch = StateBlock::Scratch;
  static std::shared_ptr<Scratch> MakeScratch(const ExitModel& model, const SharedParts& target) {
    return std::make_shared<Scratch>(target, model.layer, model.head);
  }

  ExitForward(std::shared_ptr<const ExitModel> model, Target& target, const KvCache& cache,
              std::shared_ptr<DraftStates> states, std::shared_ptr<Scratch> scratch)
      : model_(std::move(model)),
        target_(target),
        cache_(cache),
        block_(*target.shared_parts(), model_->layer.block, std::move(states), cache.capacity(),
               std::move(scratch)),
        prefix_(cache.Span(0).layout, model_->exit_layer + 1, model_->layer.block.shape.n_embd) {}

  const ExitModel* model() const { return model_.get(); }
  const StateBlock& block() const { return block_; }
  const LayerPrefix& prefix() const { return prefix_; }

  Status Follow(std::span<const int32_t> committed) {
    prefix_.Clear(0);
    return block_.Follow(committed);
  }
  Status Read(const CommittedRows& rows) {
    prefix_.Clear(0);
    if (rows.output == nullptr) return {};
    return block_.Read(rows, rows.output->hidden[0], model_->layer.keys(model_->layer.attention_norm));
  }
  void ClearTree() {
    prefix_.Clear(cache_.length());
    block_.ClearTree();
  }
  Status Settle() { return block_.Settle(); }

  size_t bytes() const { return block_.bytes() + prefix_.bytes(); }

 private:
  friend ExitRows::ForwardRows;

  // What the next rows of this one are, before and after they have run through the first layers.
  PrefixSegment Begin(std::span<const ExitRow> rows) {
    tokens_.clear();
    parents_.clear();
    for (const ExitRow& row : rows) {
      tokens_.push_back(row.token);
      parents_.push_back(row.parent);
    }
    return {.cache = &cache_, .tokens = tokens_, .parents = parents_, .prefix = &prefix_};
  }
  StateBlock::Part Place(size_t n_rows) {
    rows_.clear();
    for (int row = prefix_.n_rows() - static_cast<int>(n_rows); row < prefix_.n_rows(); ++row) {
      LS_CHECK(block_.NewSlot() == row);
      rows_.push_back({.position = prefix_.position(row), .slot = row, .tail = prefix_.path(row)});
    }
    return {.of = &block_, .rows = rows_};
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
    for (const PrefixSegment& segment : segments_) {
      const LayerPrefix& prefix = *segment.prefix;
      for (int row = prefix.n_rows() - static_cast<int>(segment.tokens.size()); row < prefix.n_rows();
           ++row) {
        std::memcpy(block_.x(r++), prefix.hidden(row), Z(model_->layer.block.shape.n_embd) * sizeof(float));
      }
    }
    next_.resize(Z(r));
    const int k = MostWanted(pieces);
    block_.target().team->Run([&](ThreadTeam::Worker& worker) {
      block_.Attend(worker, model_->layer.attention());
      block_.RunMlp(worker, model_->layer.mlp());
      block_.Top(worker, model_->output_norm, model_->head, k, next_);
    });
    HandOut(pieces, std::span(next_));
    return {};
  }

  const std::shared_ptr<const ExitModel> model_;
  Target& target_;
  const KvCache& cache_;
  StateBlock block_;
  LayerPrefix prefix_;  // the tree that is being grown, or that was last

  // Of one pass, its own rows.
  std::vector<int32_t> tokens_, parents_;
  std::vector<StateBlock::Row> rows_;
  // And of all.
  std::vector<PrefixSegment> segments_;
  std::vector<StateBlock::Part> parts_;
  std::vector<std::vector<TokenScore>> next_;
};

MeetingRows::Key ExitRows::key() const { return {.model = forward->model()}; }

class ExitDrafter final : public GrowingDrafter {
 public:
  ExitDrafter(const std::shared_ptr<const ExitModel>& model, TreeShape shape, Target& target,
              const KvCache& cache, std::shared_ptr<DraftStates> states,
              std::shared_ptr<ExitForward::Scratch> scratch)
      : GrowingDrafter(std::move(shape)),
        cache_(cache),
        range_(model->path, model->trained_positions),
        forward_(model, target, cache, std::move(states), std::move(scratch)) {}

  std::string_view name() const override { return ExitModel::kKind; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return {.hidden_layers = {forward_.model()->exit_layer}}; }
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

constexpr DrafterOption kExitOptions[] = {kDraftModelOption, kDraftWeightsOption};

// Its weights; its keys and values, one layer of the whole context; those of guesses in the target's first
// layers; and attention of the pass in which rows join that have passed those.
Result<DraftMemory> ExitMemory(const SpeculationOptions& options, const TargetFacts& target,
                               DraftFiles& files) {
  LS_ASSIGN(DraftMemory memory, (StateBlockMemory<ExitModel>(options, target, files, "layers.0")));
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, ExitModel::kKind));
  LS_ASSIGN(const int layer, ExitModel::ExitLayer(*checkpoint, target.config));
  memory.fixed += KvChunkBytes(target.cache, layer + 1) +
                  AttentionPlan::MostBytes(target.config.attention(), 1, kKvChunk);
  return memory;
}

DrafterResult MakeExit(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<ExitModel>(options, context, "beam", [&](auto model, TreeShape shape) {
    auto states = LearnedStates(options, context, model->layer.block);
    auto scratch = LearnedScratch<ExitForward>(options, context, *model);
    return std::make_unique<ExitDrafter>(std::move(model), std::move(shape), *context.target, *context.cache,
                                         std::move(states), std::move(scratch));
  });
}

}  // namespace

constexpr DrafterEntry kExitDrafter = {
    .name = ExitModel::kKind,
    .aliases = {"early-exit", "layerskip", "kangaroo"},
    .summary = "the guesses of a block after the model's first layers, which verification goes on from",
    .options = kExitOptions,
    .reads = ReadsLearned<ExitModel>,
    .check = CheckLearned,
    .fits = LearnedFits<ExitModel>,
    .memory = ExitMemory,
    .make = MakeExit,
    .in_auto = Always,
    .as_member = GrowBestAsMember,
};

}  // namespace longspec
