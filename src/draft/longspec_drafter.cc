// SPDX-License-Identifier: Apache-2.0
//
// LongSpec (arXiv 2502.17421): trees grown by a one-block draft model that reads the target's last-layer keys
// and values, so that the draft's own memory is as small at 64,000 positions as at 512. Its
// probabilities pass what the target's will pass, dice included (draft/foresight.h).
#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/guided_growth.h"
#include "draft/learned_draft.h"
#include "draft/longspec_forward.h"
#include "draft/registry.h"
#include "draft/trained_range.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"

namespace longspec {
namespace {

class LongspecDrafter final : public Drafter, private GrowthModel {
 public:
  LongspecDrafter(std::shared_ptr<const LongspecModel> model, TreeShape shape, const SharedParts& target,
                  const KvCache* cache)
      : model_(std::move(model)),
        shape_(std::move(shape)),
        cache_(cache),
        last_layer_(target.config->n_layer - 1),
        range_(model_->path, model_->trained_positions),
        forward_(model_, target, cache->Span(0).layout) {}

  std::string_view name() const override { return "longspec"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t> committed) override {
    forward_.Reset();
    if (range_.LevelsLeft(committed.size()) <= 0) return {};
    return forward_.Extend(committed).status();
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    LS_CHECK(cache_->length() + 1 == static_cast<int>(committed.size()));
    const int left = range_.LevelsToGrow(committed.size());
    if (left <= 0) return {};
    LS_TRY(forward_.Extend(committed).status());
    root_position_ = cache_->length();
    paths_.clear();
    n_slots_ = 0;
    GuidedGrowth guided(*this, budget.foresight, kDiceOfModels, committed);
    return GrowTree(shape_, {.max_nodes = budget.max_nodes, .max_depth = std::min(budget.max_depth, left)},
                    guided, tree);
  }

  // What was accepted is read from the sequence when the next tree is grown.
  Status Read(const CommittedRows&) override { return {}; }

  size_t bytes() const override { return forward_.bytes(); }

  std::string notice() const override { return range_.notice(); }

 private:
  Status Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                std::vector<std::vector<TokenScore>>& next) override {
    paths_.resize(nodes.size());
    rows_.clear();
    for (const int32_t i : which) {
      const GrownNode& node = nodes[static_cast<size_t>(i)];
      LongspecRow row{.token = node.token, .position = root_position_ + node.depth};
      if (node.parent >= 0) {
        std::vector<int32_t>& path = paths_[static_cast<size_t>(i)];
        path = paths_[static_cast<size_t>(node.parent)];
        path.push_back(row.slot = n_slots_++);
        row.path = path;
      }
      rows_.push_back(row);
    }
    return forward_.Run(rows_, cache_->Span(last_layer_), k, next);
  }

  const std::shared_ptr<const LongspecModel> model_;
  const TreeShape shape_;
  const KvCache* const cache_;
  const int last_layer_;
  TrainedRange range_;
  LongspecForward forward_;

  // The tree that is being grown.
  int root_position_ = 0, n_slots_ = 0;
  std::vector<std::vector<int32_t>> paths_;  // per node that was run: slots of its ancestors and itself
  std::vector<LongspecRow> rows_;
};

constexpr DrafterOption kLongspecOptions[] = {kDraftModelOption, kDraftWeightsOption};

DrafterResult MakeLongspec(const SpeculationOptions& options, const DraftContext& context) {
  LS_CHECK(context.cache != nullptr);
  if (context.cache->exactness() != Exactness::kLossless) {
    return Unsupported("--spec-type " + options.type +
                       ": reads the target's whole cache, and this one keeps a part");
  }
  return MakeLearned<LongspecModel>(options, context, "beam", [&](auto model, TreeShape shape) {
    return std::make_unique<LongspecDrafter>(std::move(model), std::move(shape),
                                             *context.target->shared_parts(), context.cache);
  });
}

}  // namespace

constexpr DrafterEntry kLongspecDrafter = {
    .name = "longspec",
    .aliases = {"glide"},
    .summary = "the guesses of a LongSpec draft model, which reads the model's last keys and values",
    .options = kLongspecOptions,
    .reads = ReadsLearned<LongspecModel>,
    .check = CheckLearned,
    .fits = LearnedFits<LongspecModel>,
    // What it keeps of the text is a ring of some hundred rows, whatever the context.
    .memory = LearnedMemory<LongspecModel>,
    .make = MakeLongspec,
    .in_auto = Always,
};

}  // namespace longspec
