// SPDX-License-Identifier: Apache-2.0
//
// EAGLE (arXiv 2401.15077, 2406.16858) and EAGLE-3 (2503.01840): trees grown by a one-layer draft model from
// the target's hidden states, which are read as the target computes them. The draft's own keys and values,
// one layer, are kept for all tokens it has read, and found by other sequences that begin alike
// (draft_model/draft_keys.h). Hidden states are not kept: tokens that were computed while no such draft
// read along (without one, or for a session from a file) are left out, and it drafts with the others.
//
// With SpecExtend (draft_model/spec_extend.h) the draft sees copies of some chunks of them, at positions of
// their own, so that one trained on short texts reads long ones. What is kept is the same, whoever has read
// it.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_keys.h"
#include "draft_model/draft_models.h"
#include "draft_model/eagle.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"
#include "draft_model/spec_extend.h"
#include "draft_model/trained_range.h"
#include "kv/chunk_pool.h"
#include "tensor/state_rows.h"

namespace longspec {

namespace {

class EagleDrafter final : public GrowingDrafter {
 public:
  // `cache`: the target's.
  EagleDrafter(std::shared_ptr<const EagleModel> model, TreeShape shape, const Target& target,
               std::shared_ptr<DraftKeys> keys, const KvCache& cache, const SpecExtendSettings& extend,
               std::shared_ptr<DraftLane> lane)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        width_(Z(model_->block.shape.n_embd)),
        range_(model_->path, model_->trained_positions),
        keys_(std::move(keys), cache.capacity()),
        set_(extend.on() ? MakeSet(extend, *target.shared_parts()) : nullptr),
        extended_(extend.on() ? std::make_unique<SpecExtend>(extend, target, cache, set_.get()) : nullptr),
        forward_(model_, &keys_.cache(), kFirstSeen, std::move(lane), set_.get()),
        waiting_features_(model_->n_taps() * model_->block.shape.n_embd),
        last_feature_(Z(model_->n_taps()) * width_) {}

  ~EagleDrafter() override {
    if (Settle().ok()) keys_.Share(text_);
  }

  std::string_view name() const override { return model_->name; }
  bool uses_dice() const override { return true; }
  int overlap(std::span<const int32_t> committed, int n) const override {
    return last_token_ == n && IsBeginning(text_, committed, n) ? 0 : std::min(n, 1);
  }
  Taps taps() const override { return extended_ == nullptr ? model_->taps : extended_->With(model_->taps); }

  Status Follow(std::span<const int32_t> committed) override {
    LS_TRY(Settle());
    const auto same = static_cast<int>(std::ranges::mismatch(text_, committed).in1 - text_.begin());
    if (same < static_cast<int>(text_.size())) keys_.Share(text_);
    KeepBefore(same);
    text_.assign(committed.begin(), committed.end());
    if (extended_ != nullptr) {
      extended_->Restart();
      LS_TRY(extended_->Follow(text_.size()));
      unseen_prompt_ = true;
    }
    if (keys_.Adopt(BeforeLast(committed)) && last_token_ != std::ssize(keys_.stored())) last_token_ = -1;
    return {};
  }

  Status Read(const CommittedRows& rows) override {
    LS_TRY(Remember(rows));
    if (extended_ != nullptr) {
      extended_->Read(rows);
      LS_TRY(extended_->Follow(text_.size()));
    }
    if (rows.output == nullptr || rows.rows.empty()) return {};
    KeepBefore(rows.first + 1);  // what the target computed again is read again
    // No feature comes before token 0: its slot is there for the others to lie where their tokens are.
    if (keys_.stored().empty() && keys_.n_waiting() == 0)
      LS_TRY(Take(0, std::vector<float>(last_feature_.size())));
    if (last_token_ >= 0) LS_TRY(Take(last_token_, last_feature_));
    // The last one is run when the next tree is grown, and stored with those that follow.
    const std::span<const StateRows> taps = TapsOf(*rows.output);
    LS_TRY(Take(rows.first + 1, taps, rows.rows.first(rows.rows.size() - 1)));
    CopyFeatures(taps, rows.rows.last(1), last_feature_.data());
    last_token_ = rows.first + static_cast<int>(rows.rows.size());
    const bool of_prompt = std::ssize(rows.rows) > rows.n_new;
    if (!of_prompt) return {};
    unseen_prompt_ = true;
    LS_TRY(Settle());
    keys_.Share(text_);
    return {};
  }

  size_t bytes() const override {
    return keys_.bytes() + (extended_ == nullptr ? 0 : set_->bytes() + extended_->bytes()) +
           forward_.bytes() + text_.capacity() * sizeof(int32_t) +
           (last_feature_.capacity() + outputs_.capacity()) * sizeof(float) + waiting_features_.bytes();
  }

  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    root_ = static_cast<int>(committed.size()) - 1;
    if (last_token_ != root_) return 0;
    if (extended_ != nullptr) LS_TRY(Look());
    root_place_ = extended_ == nullptr ? root_ - 1 : set_->n_slots();
    const int left = range_.LevelsToGrow(Z(root_place_ + 1));
    if (left <= 0) return left;
    LS_TRY(Settle());
    range_.Sees(keys_.stored().size(), Z(root_));
    paths_.clear();
    outputs_.clear();
    output_of_.clear();
    n_slots_ = 0;
    return left;
  }

  // Forgets the slots of this token and of those after it.
  void KeepBefore(int token) {
    keys_.KeepBefore(token);
    if (set_ != nullptr) set_->Truncate(keys_.cache().length() - kFirstSeen);
    waiting_features_.Truncate(keys_.n_waiting());
    if (last_token_ >= token) last_token_ = -1;
  }

  // Lets the slots of consecutive tokens wait, whose features these rows of the taps make.
  Status Take(int token, std::span<const StateRows> taps, std::span<const int32_t> rows) {
    while (!rows.empty()) {
      if (keys_.n_waiting() == EagleForward::kMaxRows) LS_TRY(Settle());
      const size_t n = std::min(rows.size(), Z(EagleForward::kMaxRows - keys_.n_waiting()));
      CopyFeatures(taps, rows.first(n), waiting_features_.Grow(static_cast<int>(n)));
      for (size_t i = 0; i < n; ++i) keys_.Wait(token++);
      rows = rows.subspan(n);
    }
    return {};
  }
  Status Take(int token, const std::vector<float>& feature) {
    const StateRows whole(feature.data(), 1, static_cast<int>(feature.size()));
    return Take(token, {&whole, 1}, kFirstRow);
  }

  // To (rows, n_taps, width).
  void CopyFeatures(std::span<const StateRows> taps, std::span<const int32_t> rows, float* to) const {
    for (const StateRows& tap : taps) {
      tap.Gather(rows, to, last_feature_.size());
      to += width_;
    }
  }

  // Stores what waits.
  Status Settle() {
    if (keys_.n_waiting() == 0) return {};
    std::vector<EagleRow> slots;
    for (int i = 0; i < keys_.n_waiting(); ++i) {
      slots.push_back(SlotOf(keys_.waiting()[Z(i)], waiting_features_.row(i)));
    }
    LS_TRY(forward_.Append(slots));
    keys_.MarkStored();
    waiting_features_.Truncate(0);
    return {};
  }

  // Changes what the draft sees. One tree sees one set, its root too: its key stands where the set ends.
  // (The released code runs the root on the old set.)
  Status Look() {
    LS_TRY(Settle());
    if (std::exchange(unseen_prompt_, false)) LS_TRY(extended_->HoldLast());
    if (!extended_->has_scores()) return set_->Follow();
    std::vector<int32_t> features;  // their positions
    for (size_t slot = kFirstSeen; slot < keys_.stored().size(); ++slot)
      features.push_back(keys_.stored()[slot] - 1);
    return extended_->Choose(features);
  }

  std::unique_ptr<ReindexedSet> MakeSet(const SpecExtendSettings& extend, const SharedParts& target) {
    return std::make_unique<ReindexedSet>(
        MakeHostPool(keys_.layout(), 1), RotaryOf(model_->block.rope, target), SetOf(extend),
        ReindexSource{.cache = &keys_.cache(), .first = kFirstSeen, .position = [this](int slot) {
                        return keys_.stored()[Z(slot)] - 1;
                      }});
  }

  Status Remember(const CommittedRows& rows) {
    const auto n_new = Z(rows.n_new);
    if (text_.size() + n_new != rows.sequence.size()) return Follow(rows.sequence);
    const auto added = rows.sequence.last(n_new);
    text_.insert(text_.end(), added.begin(), added.end());
    return {};
  }

  std::span<const StateRows> TapsOf(const TargetOutput::Segment& output) const {
    if (model_->taps.final_hidden) return {&output.final_hidden, 1};
    return output.hidden;
  }

  // `feature` (n_taps, width): of the position before the token.
  EagleRow SlotOf(int token, const float* feature) const {
    EagleRow slot = {.token = text_[Z(token)], .position = token - 1};
    for (int tap = 0; tap < model_->n_taps(); ++tap) slot.feature[Z(tap)] = feature + Z(tap) * width_;
    return slot;
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
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
        slots_.push_back(SlotOf(root_, last_feature_.data()));
        slots_.back().position = root_place_;
      } else {
        const auto parent = Z(nodes[node].parent);
        path = paths_[parent];
        slots_.push_back({.token = nodes[node].token, .position = root_place_ + nodes[node].depth});
        slots_.back().feature[0] = outputs_.data() + Z(output_of_[parent]) * width_;
      }
      path.push_back(n_slots_);
      output_of_[node] = n_slots_++;
      slots_.back().path = path;
    }
    const bool drafted = nodes[Z(which[0])].parent >= 0;
    EagleRows rows(&forward_, slots_, drafted, k, &next, outputs_.data() + first);
    co_return co_await Meet(rows);
  }

  const std::shared_ptr<const EagleModel> model_;
  const size_t width_;
  TrainedRange range_;
  static constexpr int kFirstSeen = 1;  // no feature comes before token 0
  static constexpr std::array<int32_t, 1> kFirstRow = {0};
  SequenceKeys keys_;  // by places of tokens in the text; slot 0 is that of token 0
  // With SpecExtend, else null: what trees see of the cache, and what is chosen.
  const std::unique_ptr<ReindexedSet> set_;
  const std::unique_ptr<SpecExtend> extended_;
  EagleForward forward_;
  std::vector<int32_t> text_;        // committed tokens
  StateBuffer waiting_features_;     // of tokens whose slots wait, (n_taps, width) each
  int last_token_ = -1;              // of the newest slot, which is not stored yet; -1: there is none
  std::vector<float> last_feature_;  // its own, (n_taps, width)
  std::vector<EagleRow> slots_;
  bool unseen_prompt_ = false;  // a prompt was read since the last tree

  // The tree that is being grown.
  int root_ = 0;        // its place in the text
  int root_place_ = 0;  // where its slot stands
  int n_slots_ = 0;
  std::vector<std::vector<int32_t>>
      paths_;                       // per node that was run: slots of the root, its ancestors and itself
  std::vector<int32_t> output_of_;  // per node that was run: its place in outputs_, which is its slot
  std::vector<float> outputs_;      // (n_slots, width)
};

constexpr DrafterOption kEagleOptions[] = {kDraftModelOption,      kDraftWeightsOption,
                                           kSpecExtendOption,      kSpecExtendChunksOption,
                                           kSpecExtendEveryOption, kSpecExtendFromOption};

// EAGLE-1's fixed tree of 25 nodes (its choices.py; 4, 8, 8, 3 and 2 nodes a level).
constexpr char kEagle1Tree[] =
    "[[0],[1],[2],[3],[0,0],[0,1],[0,2],[1,0],[1,1],[2,0],[2,1],[3,0],[0,0,0],[0,0,1],[0,0,2],[0,1,0],[0,1,1]"
    ","
    "[0,2,0],[0,2,1],[1,0,0],[0,0,0,0],[0,0,0,1],[0,0,0,2],[0,0,0,0,0],[0,0,0,0,1]]";
constexpr DrafterPreset kEaglePresets[] = {
    {.name = "eagle1",
     .of = "EAGLE-1",
     .set =
         [](SpeculationOptions& o) {
           o.tree = kEagle1Tree;
           SetNodes(25, &o);
           o.dice = false;
         }},
    {.name = "eagle2",
     .of = "EAGLE-2",
     .set =
         [](SpeculationOptions& o) {
           o.tree = "eagle2:10:5:59";
           SetNodes(59, &o);
           o.dice = false;
         }},
};
constexpr DrafterPreset kEagle3Presets[] = {
    {.name = "draft-eagle3",
     .of = "llama.cpp",
     .set =
         [](SpeculationOptions& o) {
           o.tree = "chain";
           SetNodes(3, &o);
           o.dice = false;
         }},
};

template <typename Model>
DrafterResult MakeEagle(const SpeculationOptions& options, const DraftContext& context) {
  LS_CHECK(context.cache != nullptr);
  LS_TRY(CheckSpecExtend(options, *context.cache));
  return MakeLearned<Model>(options, context, "eagle2", [&](auto model, TreeShape shape) {
    const DraftBlock& block = model->block;
    const auto extend = SpecExtendOf(options, kSpecExtendOfEagle, model->trained_positions);
    auto keys = LearnedKeys(options, context, block);
    auto lane = LearnedLane<EagleForward>(options, context, *model);
    return std::make_unique<EagleDrafter>(std::move(model), std::move(shape), *context.target,
                                          std::move(keys), *context.cache, extend, std::move(lane));
  });
}

template <typename Model>
constexpr DrafterEntry Entry(std::span<const DrafterPreset> presets, std::string_view summary) {
  return LearnedEntry<Model>({.presets = presets,
                              .summary = summary,
                              .options = kEagleOptions,
                              .settle = SettleSpecExtend,
                              .reads_states = true,
                              .make = MakeEagle<Model>});
}

}  // namespace

// Its activations, and one layer's keys and values of the whole context.
DraftMemory EagleModel::Working(const SpeculationOptions& options, const TargetFacts& target, int64_t) const {
  DraftMemory plan = {.fixed = DraftLane::Bytes(EagleForward::Size(*this, n_logits))};
  const KvLayout layout = DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, target.cache);
  plan.kv_chunk = plan.kept_chunk = KvChunkBytes(layout, 1);
  if (AsksForSpecExtend(options)) {
    AddSpecExtendMemory(options, kSpecExtendOfEagle, target.sizes, layout, 1, EagleForward::kMaxRows, &plan);
  }
  return plan;
}

constexpr DrafterEntry kEagleDrafter = Entry<Eagle1Model>(
    kEaglePresets, "the guesses of an EAGLE or EAGLE-2 draft model, from the model's last hidden states");
constexpr DrafterEntry kEagle3Drafter = Entry<Eagle3Model>(
    kEagle3Presets, "the guesses of an EAGLE-3 draft model, from hidden states of three layers");

}  // namespace longspec
