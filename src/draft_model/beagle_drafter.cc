// SPDX-License-Identifier: Apache-2.0
//
// Beagle (arXiv 2505.24544): trees grown by a draft that attends from guessed tokens to the target's final
// hidden states. Guesses before a guess are seen as the draft's own states, which are dropped when the round
// is over: the states that are kept are the target's.
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/beagle_forward.h"
#include "draft_model/draft_models.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"
#include "draft_model/trained_range.h"

namespace longspec {
namespace {

class BeagleDrafter final : public GrowingDrafter {
 public:
  BeagleDrafter(const std::shared_ptr<const BeagleModel>& model, TreeShape shape, const SharedParts& target,
                const KvCache& cache, std::shared_ptr<DraftStates> states,
                std::shared_ptr<BeagleForward::Scratch> scratch)
      : GrowingDrafter(std::move(shape)),
        cache_(cache),
        range_(model->path, model->trained_positions),
        forward_(model, target, std::move(states), cache.capacity(), std::move(scratch)) {}

  std::string_view name() const override { return BeagleModel::kKind; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return {.final_hidden = true}; }

  Status Follow(std::span<const int32_t> committed) override { return forward_.Follow(committed); }

  Status Read(const CommittedRows& rows) override {
    return rows.output == nullptr ? Status() : forward_.Read(rows);
  }

  size_t bytes() const override { return forward_.bytes(); }
  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    if (!HoldsBeforeLast(cache_, committed)) return 0;
    const int left = range_.LevelsToGrow(committed.size());
    if (left <= 0) return left;
    LS_TRY(forward_.BeginTree());
    range_.Sees(forward_.block().positions().size(), committed.size() - 1);
    root_position_ = static_cast<int>(committed.size()) - 1;
    return left;
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    rows_.clear();
    for (const int32_t i : which) {
      const GrownNode& node = nodes[static_cast<size_t>(i)];
      rows_.push_back(
          {.node = i, .parent = node.parent, .token = node.token, .position = root_position_ + node.depth});
    }
    BeagleRows rows(&forward_, rows_, k, &next);
    co_return co_await Meet(rows);
  }

  const KvCache& cache_;
  TrainedRange range_;
  BeagleForward forward_;

  // The tree that is being grown.
  int root_position_ = 0;
  std::vector<BeagleRow> rows_;
};

constexpr DrafterOption kBeagleOptions[] = {kDraftModelOption, kDraftWeightsOption};

Result<DraftMemory> BeagleMemory(const SpeculationOptions& options, const TargetFacts& target,
                                 DraftFiles& files) {
  return StateBlockMemory<BeagleModel>(options, target, files, "layer");
}

DrafterResult MakeBeagle(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<BeagleModel>(options, context, "eagle2", [&](auto model, TreeShape shape) {
    return std::make_unique<BeagleDrafter>(model, std::move(shape), *context.target->shared_parts(),
                                           *context.cache,
                                           LearnedStates(options, context, model->layer.block),
                                           LearnedScratch<BeagleForward>(options, context, *model));
  });
}

}  // namespace

constexpr DrafterEntry kBeagleDrafter = {
    .name = BeagleModel::kKind,
    .summary = "the guesses of a Beagle draft model, which attends to the model's final hidden states",
    .options = kBeagleOptions,
    .reads_dice = true,
    .reads = ReadsLearned<BeagleModel>,
    .reads_states = true,
    .check = CheckLearned,
    .fits = LearnedFits<BeagleModel>,
    .memory = BeagleMemory,
    .make = MakeBeagle,
    .in_auto = Always,
    .as_member = GrowBestAsMember,
};

}  // namespace longspec
