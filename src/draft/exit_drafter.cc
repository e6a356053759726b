// SPDX-License-Identifier: Apache-2.0
//
// Early exit, or self-speculation (LayerSkip, arXiv 2404.16710; Kangaroo, arXiv 2404.18911): trees grown by a
// block of the draft's own after the target's first layers. A guess passes those layers as it is drafted, and
// since a row's result does not depend on the rows beside it, verification goes on where they end
// (model/layer_prefix.h): nothing of the target is computed twice.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/exit_model.h"
#include "draft/guided_growth.h"
#include "draft/learned_draft.h"
#include "draft/registry.h"
#include "draft/state_block.h"
#include "draft/trained_range.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "kv/chunk_pool.h"

namespace longspec {
namespace {

InputForms FormsOf(const ExitModel& model) {
  InputForms forms = model.layer.forms();
  forms.Add(model.head.matrix);
  return forms;
}

class ExitDrafter final : public Drafter, private GrowthModel {
 public:
  ExitDrafter(std::shared_ptr<const ExitModel> model, TreeShape shape, Target& target, const KvCache& cache,
              std::shared_ptr<DraftStates> states)
      : model_(std::move(model)),
        shape_(std::move(shape)),
        target_(target),
        cache_(cache),
        range_(model_->path, model_->trained_positions),
        block_(*target.shared_parts(), model_->layer.block, FormsOf(*model_), std::move(states),
               cache.capacity(), model_->head.matrix.n_out),
        prefix_(cache.Span(0).layout, model_->exit_layer + 1, model_->layer.block.shape.n_embd) {}

  std::string_view name() const override { return ExitModel::kKind; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return {.hidden_layers = {model_->exit_layer}}; }
  const LayerPrefix* prefix() const override { return prefix_.n_rows() > 0 ? &prefix_ : nullptr; }

  Status Follow(std::span<const int32_t> committed) override {
    prefix_.Clear(0);
    return block_.Follow(committed);
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    prefix_.Clear(cache_.length());
    block_.ClearTree();
    row_of_.clear();
    if (cache_.length() + 1 != static_cast<int>(committed.size()))
      return {};  // the root has no keys before it
    const int left = range_.LevelsToGrow(committed.size());
    if (left <= 0) return {};
    LS_TRY(block_.Settle());
    range_.Sees(block_.positions().size(), committed.size() - 1);
    GuidedGrowth guided(*this, budget, kDiceOfModels, committed);
    return GrowTreeNow(shape_, {.max_nodes = budget.max_nodes, .max_depth = std::min(budget.max_depth, left)},
                       guided, tree);
  }

  Status Read(const CommittedRows& rows) override {
    prefix_.Clear(0);
    if (rows.output == nullptr) return {};
    return block_.Read(rows, rows.output->hidden[0], model_->layer.keys(model_->layer.attention_norm));
  }

  size_t bytes() const override { return block_.bytes() + prefix_.bytes(); }
  std::string notice() const override { return range_.notice(); }

 private:
  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override try {
    const size_t part = Z(StateBlock::kMaxRows);
    next.resize(which.size());
    row_of_.resize(nodes.size(), -1);
    for (size_t begin = 0; begin < which.size(); begin += part) {
      const size_t n = std::min(part, which.size() - begin);
      LS_TRY(RunPart(nodes, which.subspan(begin, n), k, std::span(next).subspan(begin, n)));
    }
    return {};
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a draft of " + std::to_string(which.size()) + " rows");
  }

  // Row i of the prefix is slot i of the block's own keys and values.
  Status RunPart(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                 std::span<std::vector<TokenScore>> next) {
    tokens_.clear();
    parents_.clear();
    const int first = prefix_.n_rows();
    for (const int32_t i : which) {
      const GrownNode& node = nodes[Z(i)];
      tokens_.push_back(node.token);
      parents_.push_back(node.parent < 0 ? -1 : row_of_[Z(node.parent)]);
      row_of_[Z(i)] = first + static_cast<int>(tokens_.size()) - 1;
    }
    LS_TRY(target_.RunPrefix(cache_, tokens_, parents_, prefix_));
    rows_.clear();
    for (int row = first; row < prefix_.n_rows(); ++row) {
      LS_CHECK(block_.NewSlot() == row);
      rows_.push_back({.position = prefix_.position(row), .slot = row, .tail = prefix_.path(row)});
    }
    block_.Place(rows_);
    for (int row = first; row < prefix_.n_rows(); ++row) {
      std::memcpy(block_.x(row - first), prefix_.hidden(row),
                  Z(model_->layer.block.shape.n_embd) * sizeof(float));
    }
    block_.target().team->Run([&](ThreadTeam::Worker& worker) {
      block_.Attend(worker, model_->layer.attention());
      block_.RunMlp(worker, model_->layer.mlp());
      block_.Top(worker, model_->output_norm, model_->head, k, next);
    });
    return {};
  }

  const std::shared_ptr<const ExitModel> model_;
  const TreeShape shape_;
  Target& target_;
  const KvCache& cache_;
  TrainedRange range_;
  StateBlock block_;

  // The tree that is being grown, or that was last.
  LayerPrefix prefix_;
  std::vector<int32_t> row_of_;  // of the prefix, per node; -1: it was not run
  std::vector<int32_t> tokens_, parents_;
  std::vector<StateBlock::Row> rows_;
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
    return std::make_unique<ExitDrafter>(std::move(model), std::move(shape), *context.target, *context.cache,
                                         std::move(states));
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
