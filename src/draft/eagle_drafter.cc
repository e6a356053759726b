// SPDX-License-Identifier: Apache-2.0
//
// EAGLE (arXiv 2401.15077, 2406.16858) and EAGLE-3 (2503.01840): trees grown by a one-layer draft model from
// the target's hidden states, which are read as the target computes them. The draft's own keys and values,
// one layer, are kept for all positions it has read. Hidden states are not kept: where a beginning was
// computed without the draft (a prefix that another sequence had computed, a session from a file), it begins
// at the first position it reads, and drafts with what came since.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/eagle_forward.h"
#include "draft/guided_growth.h"
#include "draft/learned_draft.h"
#include "draft/registry.h"
#include "draft/trained_range.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "kv/chunk_pool.h"

namespace longspec {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

class EagleDrafter final : public Drafter, private GrowthModel {
 public:
  EagleDrafter(std::shared_ptr<const EagleModel> model, TreeShape shape, const SharedParts& target,
               const KvCache& cache)
      : model_(std::move(model)),
        shape_(std::move(shape)),
        width_(Z(model_->block.shape.n_embd)),
        range_(model_->path, model_->trained_positions),
        forward_(model_, target,
                 DraftCacheLayout(model_->block.shape.n_head_kv, model_->block.shape.head_dim,
                                  cache.Span(0).layout),
                 cache.capacity()),
        last_feature_(Z(model_->n_taps()) * width_) {}

  std::string_view name() const override { return model_->name; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return model_->taps; }

  // A slot depends on the tokens up to the one after it.
  Status Follow(std::span<const int32_t> committed) override {
    const auto same = static_cast<int>(std::ranges::mismatch(text_, committed).in1 - text_.begin());
    KeepBefore(same - 1);
    text_.assign(committed.begin(), committed.end());
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    // The root's slot is that of the last position whose feature there is.
    root_position_ = static_cast<int>(committed.size()) - 2;
    if (root_position_ < 0 || last_position_ != root_position_) return {};
    const int left = range_.LevelsToGrow(committed.size() - 1);
    if (left <= 0) return {};
    range_.Sees(positions_.size(), Z(root_position_));
    paths_.clear();
    outputs_.clear();
    output_of_.clear();
    n_slots_ = 0;
    GuidedGrowth guided(*this, budget.foresight, kDiceOfModels, committed);
    return GrowTree(shape_, {.max_nodes = budget.max_nodes, .max_depth = std::min(budget.max_depth, left)},
                    guided, tree);
  }

  Status Read(const CommittedRows& rows) override {
    Remember(rows);
    if (rows.output == nullptr || rows.rows.empty()) return {};
    KeepBefore(rows.first);  // what the target computed again is read again
    slots_.clear();
    if (last_position_ >= 0) slots_.push_back(LastSlot());
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      slots_.push_back({.token = text_[Z(rows.first) + i + 1], .position = rows.first + static_cast<int>(i)});
      SetFeature(*rows.output, rows.rows[i], &slots_.back());
    }
    // The last one is run when the next tree is grown, and stored with those that follow.
    const auto stored = std::span(slots_).first(slots_.size() - 1);
    LS_TRY(forward_.Append(stored));
    for (const EagleRow& slot : stored) positions_.push_back(slot.position);
    const EagleRow& last = slots_.back();
    for (int tap = 0; tap < model_->n_taps(); ++tap) {
      std::memcpy(last_feature_.data() + Z(tap) * width_, last.feature[Z(tap)], width_ * sizeof(float));
    }
    last_position_ = last.position;
    return {};
  }

  size_t bytes() const override {
    return forward_.bytes() + text_.capacity() * sizeof(int32_t) +
           (last_feature_.capacity() + outputs_.capacity()) * sizeof(float);
  }

  std::string notice() const override { return range_.notice(); }

 private:
  // Forgets the slots of `position` and after it.
  void KeepBefore(int position) {
    positions_.erase(std::ranges::lower_bound(positions_, position), positions_.end());
    forward_.Truncate(static_cast<int>(positions_.size()));
    if (last_position_ >= position) last_position_ = -1;
  }

  void Remember(const CommittedRows& rows) {
    const auto n_new = Z(rows.n_new);
    if (text_.size() + n_new == rows.sequence.size()) {
      const auto added = rows.sequence.last(n_new);
      text_.insert(text_.end(), added.begin(), added.end());
    } else {
      (void)Follow(rows.sequence);
    }
  }

  void SetFeature(const TargetOutput::Segment& output, int row, EagleRow* slot) const {
    if (model_->taps.final_hidden) {
      slot->feature[0] = output.final_hidden + Z(row) * width_;
      return;
    }
    for (size_t tap = 0; tap < model_->taps.hidden_layers.size(); ++tap) {
      slot->feature[tap] = output.hidden[tap] + Z(row) * width_;
    }
  }

  EagleRow LastSlot() const {
    EagleRow slot = {.token = text_[Z(last_position_) + 1], .position = last_position_};
    for (int tap = 0; tap < model_->n_taps(); ++tap) {
      slot.feature[Z(tap)] = last_feature_.data() + Z(tap) * width_;
    }
    return slot;
  }

  Status Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                std::vector<std::vector<TokenScore>>& next) override {
    paths_.resize(nodes.size());
    output_of_.resize(nodes.size(), -1);
    // What is to be run must not move any more: features point into it.
    const size_t first = outputs_.size();
    outputs_.resize(first + which.size() * width_);
    slots_.clear();
    for (size_t i = 0; i < which.size(); ++i) {
      const auto node = Z(which[i]);
      std::vector<int32_t>& path = paths_[node];
      if (nodes[node].parent < 0) {
        slots_.push_back(LastSlot());
      } else {
        const auto parent = Z(nodes[node].parent);
        path = paths_[parent];
        slots_.push_back({.token = nodes[node].token, .position = root_position_ + nodes[node].depth});
        slots_.back().feature[0] = outputs_.data() + Z(output_of_[parent]) * width_;
      }
      path.push_back(n_slots_);
      output_of_[node] = n_slots_++;
      slots_.back().path = path;
    }
    const bool drafted = nodes[Z(which[0])].parent >= 0;
    return forward_.Run(slots_, drafted, k, next, outputs_.data() + first);
  }

  const std::shared_ptr<const EagleModel> model_;
  const TreeShape shape_;
  const size_t width_;
  TrainedRange range_;
  EagleForward forward_;
  std::vector<int32_t> text_;        // committed tokens
  std::vector<int32_t> positions_;   // of the slots whose keys are stored, ascending
  int last_position_ = -1;           // of the newest slot, which is not stored yet; -1: there is none
  std::vector<float> last_feature_;  // its own, (n_taps, width)
  std::vector<EagleRow> slots_;

  // The tree that is being grown.
  int root_position_ = 0, n_slots_ = 0;
  std::vector<std::vector<int32_t>>
      paths_;                       // per node that was run: slots of the root, its ancestors and itself
  std::vector<int32_t> output_of_;  // per node that was run: its place in outputs_, which is its slot
  std::vector<float> outputs_;      // (n_slots, width)
};

constexpr DrafterOption kEagleOptions[] = {kDraftModelOption, kDraftWeightsOption};

// Its weights, its activations, and one layer's keys and values of the whole context.
template <typename Model>
Result<DraftMemory> EagleMemory(const SpeculationOptions& options, const TargetFacts& target,
                                DraftFiles& files) {
  LS_ASSIGN(DraftMemory memory, LearnedMemory<Model>(options, target, files));
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, Model::kKind));
  LS_ASSIGN(const EagleFacts facts, Model::Facts(*checkpoint, target.config));
  const BlockShape& shape = facts.block.shape;
  memory.fixed += EagleForward::ScratchBytes(facts);
  memory.kv_chunk = KvChunkBytes(DraftCacheLayout(shape.n_head_kv, shape.head_dim, target.cache), 1);
  return memory;
}

template <typename Model>
DrafterResult MakeEagle(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<Model>(options, context, "eagle2", [&](auto model, TreeShape shape) {
    return std::make_unique<EagleDrafter>(std::move(model), std::move(shape), *context.target->shared_parts(),
                                          *context.cache);
  });
}

template <typename Model>
constexpr DrafterEntry Entry(std::array<std::string_view, 3> aliases, std::string_view summary) {
  return {.name = Model::kKind,
          .aliases = aliases,
          .summary = summary,
          .options = kEagleOptions,
          .reads = ReadsLearned<Model>,
          .check = CheckLearned,
          .fits = LearnedFits<Model>,
          .memory = EagleMemory<Model>,
          .make = MakeEagle<Model>,
          .in_auto = Always};
}

}  // namespace

constexpr DrafterEntry kEagleDrafter =
    Entry<Eagle1Model>({"eagle1", "eagle2"},
                       "the guesses of an EAGLE or EAGLE-2 draft model, from the model's last hidden states");
constexpr DrafterEntry kEagle3Drafter =
    Entry<Eagle3Model>({}, "the guesses of an EAGLE-3 draft model, from hidden states of three layers");

}  // namespace longspec
