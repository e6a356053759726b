// SPDX-License-Identifier: Apache-2.0
//
// LongSpec (arXiv 2502.17421): trees grown by a one-block draft model that reads the target's last-layer keys
// and values, so that the draft's own memory is as small at 64,000 positions as at 512. One with keys of its
// own keeps those of one layer, made of the target's final hidden states. Its
// probabilities pass what the target's will pass, dice included (draft/foresight.h).
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_models.h"
#include "draft_model/learned_draft.h"
#include "draft_model/longspec_forward.h"
#include "draft_model/registry.h"
#include "draft_model/state_block.h"
#include "draft_model/trained_range.h"

namespace longspec {
namespace {

class LongspecDrafter final : public GrowingDrafter {
 public:
  struct Scratch {
    Scratch(const LongspecModel& model, const SharedParts& target) : forward(model, target) {
      if (!model.own_keys) return;
      InputForms forms;
      for (const kernels::PackedWeights* w : {&model.cross_k, &model.cross_v}) forms.Add(w->matrix());
      own_keys = std::make_shared<StateBlock::Scratch>(
          target, LongspecModel::Block(*target.config, model.n_ff), forms, kNoHead);
    }
    LongspecForward::Scratch forward;
    std::shared_ptr<StateBlock::Scratch> own_keys;  // null: it has none
  };
  static std::shared_ptr<Scratch> MakeScratch(const LongspecModel& model, const SharedParts& target) {
    return std::make_shared<Scratch>(model, target);
  }

  // `states`: of a draft with keys of its own.
  LongspecDrafter(std::shared_ptr<const LongspecModel> model, TreeShape shape, const SharedParts& target,
                  const KvCache* cache, std::shared_ptr<DraftStates> states,
                  const std::shared_ptr<Scratch>& scratch)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        cache_(cache),
        last_layer_(target.config->n_layer - 1),
        range_(model_->path, model_->trained_positions),
        forward_(model_, target, cache->Span(0).layout, {scratch, &scratch->forward}) {
    if (!model_->own_keys) return;
    own_keys_.emplace(target, LongspecModel::Block(*target.config, model_->n_ff), std::move(states),
                      cache->capacity(), scratch->own_keys);
  }

  std::string_view name() const override { return "longspec"; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return {.final_hidden = own_keys_.has_value()}; }

  Status Follow(std::span<const int32_t> committed) override {
    forward_.Reset();
    // The tokens are read when a tree is grown.
    return own_keys_ ? own_keys_->Follow(committed) : Status();
  }

  // Its tokens are read from the sequence when the next tree is grown.
  Status Read(const CommittedRows& rows) override {
    if (!own_keys_ || rows.output == nullptr) return {};
    return own_keys_->Read(rows, rows.output->final_hidden,
                           {.k = &model_->cross_k.matrix(),
                            .v = &model_->cross_v.matrix(),
                            .k_bias = model_->cross_k_bias,
                            .v_bias = model_->cross_v_bias});
  }

  size_t bytes() const override { return forward_.bytes() + (own_keys_ ? own_keys_->bytes() : 0); }

  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    if (!HoldsBeforeLast(*cache_, committed)) return 0;
    const int left = range_.LevelsToGrow(committed.size());
    if (left <= 0) return left;
    LS_TRY(forward_.Extend(committed).status());
    if (own_keys_) {
      LS_TRY(own_keys_->Settle());
      range_.Sees(own_keys_->positions().size(), committed.size() - 1);
    }
    root_position_ = cache_->length();
    paths_.clear();
    n_slots_ = 0;
    return left;
  }

  static constexpr int64_t kNoHead = 0;  // of the block that keeps keys: it only makes them

  KvSpan Keys() const { return own_keys_ ? own_keys_->kept() : cache_->Span(last_layer_); }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
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
    LongspecRows rows(&forward_, rows_, Keys(), k, &next);
    co_return co_await Meet(rows);
  }

  const std::shared_ptr<const LongspecModel> model_;
  const KvCache* const cache_;
  const int last_layer_;
  TrainedRange range_;
  LongspecForward forward_;
  std::optional<StateBlock> own_keys_;

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
    const SharedParts& target = *context.target->shared_parts();
    std::shared_ptr<DraftStates> states;
    if (model->own_keys)
      states = LearnedStates(options, context, LongspecModel::Block(*target.config, model->n_ff));
    const auto scratch = LearnedScratch<LongspecDrafter>(options, context, *model);
    return std::make_unique<LongspecDrafter>(std::move(model), std::move(shape), target, context.cache,
                                             std::move(states), scratch);
  });
}

// Its weights, its activations and the ring of its window, whatever the context; with keys of its own, one
// layer's of all of it.
Result<DraftMemory> LongspecMemory(const SpeculationOptions& options, const TargetFacts& target,
                                   DraftFiles& files) {
  LS_ASSIGN(DraftMemory memory, LearnedMemory<LongspecModel>(options, target, files));
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, LongspecModel::kKind));
  LS_ASSIGN(const bool own_keys, LongspecModel::HasOwnKeys(*checkpoint));
  LS_ASSIGN(const DraftBlock block, LongspecModel::ReadBlock(*checkpoint, target.config));
  memory.fixed += LongspecForward::ScratchBytes(target.config, block.shape.n_ff,
                                                DraftHeadRows(*checkpoint, target.config));
  LS_ASSIGN(const int window, LongspecModel::WindowOf(*checkpoint));
  memory.fixed += Z(LongspecForward::RingChunks(window)) * target.cache.layer_bytes();
  if (!own_keys) return memory;
  memory.fixed += StateBlock::ScratchBytes(block, 0);
  memory.kv_chunk = memory.kept_chunk =
      KvChunkBytes(DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, target.cache), 1);
  return memory;
}

}  // namespace

constexpr DrafterEntry kLongspecDrafter = {
    .name = "longspec",
    .summary = "the guesses of a LongSpec draft model, which reads the model's last keys and values",
    .options = kLongspecOptions,
    .reads_dice = true,
    .reads = ReadsLearned<LongspecModel>,
    .reads_states = true,
    .check = CheckLearned,
    .fits = LearnedFits<LongspecModel>,
    .memory = LongspecMemory,
    .make = MakeLongspec,
    .in_auto = Always,
    .as_member = GrowBestAsMember,
};

}  // namespace longspec
