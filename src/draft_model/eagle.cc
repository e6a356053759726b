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
#include "draft_model/eagle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_models.h"
#include "draft_model/draft_pass.h"
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
               std::shared_ptr<EagleForward::Scratch> scratch)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        width_(Z(model_->block.shape.n_embd)),
        range_(model_->path, model_->trained_positions),
        kept_keys_(std::move(keys)),
        cache_(MakeFullCache(kept_keys_->pool(), cache.capacity())),
        set_(extend.on() ? MakeSet(extend, *target.shared_parts()) : nullptr),
        extended_(extend.on() ? std::make_unique<SpecExtend>(extend, target, cache, set_.get()) : nullptr),
        forward_(model_, *target.shared_parts(), cache_.get(), kFirstSeen, std::move(scratch), set_.get()),
        waiting_features_(model_->n_taps() * model_->block.shape.n_embd),
        last_feature_(Z(model_->n_taps()) * width_) {}

  ~EagleDrafter() override {
    if (Settle().ok()) Keep();
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
    if (same < static_cast<int>(text_.size())) Keep();
    KeepBefore(same);
    text_.assign(committed.begin(), committed.end());
    if (extended_ != nullptr) {
      extended_->Restart();
      LS_TRY(extended_->Follow(text_.size()));
      unseen_prompt_ = true;
    }
    const int known = kept_keys_->Adopt(BeforeLast(committed), *cache_);
    if (known > static_cast<int>(slot_tokens_.size())) {
      slot_tokens_.resize(Z(known));
      std::iota(slot_tokens_.begin(), slot_tokens_.end(), 0);
      if (last_token_ != known) last_token_ = -1;
    }
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
    if (slot_tokens_.empty() && waiting_.empty()) LS_TRY(Take(0, std::vector<float>(last_feature_.size())));
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
    Keep();
    return {};
  }

  size_t bytes() const override {
    return cache_->bytes() + (extended_ == nullptr ? 0 : set_->bytes() + extended_->bytes()) +
           forward_.bytes() +
           (text_.capacity() + slot_tokens_.capacity() + waiting_.capacity()) * sizeof(int32_t) +
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
    range_.Sees(slot_tokens_.size(), Z(root_));
    paths_.clear();
    outputs_.clear();
    output_of_.clear();
    n_slots_ = 0;
    return left;
  }

  // Forgets the slots of this token and of those after it.
  void KeepBefore(int token) {
    slot_tokens_.erase(std::ranges::lower_bound(slot_tokens_, token), slot_tokens_.end());
    cache_->Truncate(static_cast<int>(slot_tokens_.size()));
    if (set_ != nullptr) set_->Truncate(cache_->length() - kFirstSeen);
    waiting_.erase(std::ranges::lower_bound(waiting_, token), waiting_.end());
    waiting_features_.Truncate(static_cast<int>(waiting_.size()));
    if (last_token_ >= token) last_token_ = -1;
  }

  // For other sequences: slots up to the first token it has not read.
  void Keep() {
    size_t n = 0;
    while (n < slot_tokens_.size() && slot_tokens_[n] == static_cast<int32_t>(n)) ++n;
    kept_keys_->Keep(std::span(text_).first(n), *cache_);
  }

  // Lets the slots of consecutive tokens wait, whose features these rows of the taps make: a few slots after
  // each round cost a pass over weights each time, and nobody looks at them before the next tree.
  Status Take(int token, std::span<const StateRows> taps, std::span<const int32_t> rows) {
    while (!rows.empty()) {
      if (waiting_.size() == Z(EagleForward::kMaxRows)) LS_TRY(Settle());
      const size_t n = std::min(rows.size(), Z(EagleForward::kMaxRows) - waiting_.size());
      CopyFeatures(taps, rows.first(n), waiting_features_.Grow(static_cast<int>(n)));
      for (size_t i = 0; i < n; ++i) waiting_.push_back(token++);
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
    if (waiting_.empty()) return {};
    std::vector<EagleRow> slots;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      slots.push_back(SlotOf(waiting_[i], waiting_features_.row(static_cast<int>(i))));
    }
    LS_TRY(forward_.Append(slots));
    slot_tokens_.insert(slot_tokens_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
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
    for (size_t slot = kFirstSeen; slot < slot_tokens_.size(); ++slot)
      features.push_back(slot_tokens_[slot] - 1);
    return extended_->Choose(features);
  }

  std::unique_ptr<ReindexedSet> MakeSet(const SpecExtendSettings& extend, const SharedParts& target) {
    return std::make_unique<ReindexedSet>(
        MakeHostPool(kept_keys_->pool()->layout(), 1), RotaryOf(model_->block.rope, target), SetOf(extend),
        ReindexSource{.cache = cache_.get(), .first = kFirstSeen, .position = [this](int slot) {
                        return slot_tokens_[Z(slot)] - 1;
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
  const std::shared_ptr<DraftKeys> kept_keys_;
  static constexpr int kFirstSeen = 1;  // no feature comes before token 0
  static constexpr std::array<int32_t, 1> kFirstRow = {0};
  const std::unique_ptr<FullCache> cache_;
  // With SpecExtend, else null: what trees see of the cache, and what is chosen.
  const std::unique_ptr<ReindexedSet> set_;
  const std::unique_ptr<SpecExtend> extended_;
  EagleForward forward_;
  std::vector<int32_t> text_;  // committed tokens
  // Tokens whose slots are stored, as places in the text, ascending. Slot 0 is that of token 0.
  std::vector<int32_t> slot_tokens_;
  // Read and not stored: as many tokens as features, (n_taps, width) each.
  std::vector<int32_t> waiting_;
  StateBuffer waiting_features_;
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
    auto scratch = LearnedScratch<EagleForward>(options, context, *model);
    return std::make_unique<EagleDrafter>(std::move(model), std::move(shape), *context.target,
                                          std::move(keys), *context.cache, extend, std::move(scratch));
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
  DraftMemory plan = {.fixed = EagleForward::ScratchBytes(*this, n_logits)};
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

namespace {

constexpr size_t kEagleStateBytes = 1 << 20;  // of attention's partial states, whatever the context

// fc reads two or more hidden states, EAGLE-3's attention two.
BlockShape ShapeOf(const DraftBlock& block, int n_taps) {
  BlockShape shape = block.shape;
  shape.n_other = std::max(2, n_taps) * shape.n_embd;
  return shape;
}

InputForms FormsOf(const EagleModel& m) {
  InputForms forms = InputFormsOf({&m.fc, &m.attention.q, &m.attention.k, &m.attention.v, &m.attention.o,
                                   &m.mlp.gate, &m.mlp.up, &m.mlp.down});
  forms.Add(m.head.matrix);
  return forms;
}

AlignedBuffer Floats(int64_t n) { return AlignedBuffer(Z(n) * sizeof(float)); }

}  // namespace

EagleForward::Scratch::Scratch(const EagleModel& model, const SharedParts& target)
    : DraftScratch(target, ShapeOf(model.block, model.n_taps()), FormsOf(model), kMaxRows,
                   model.head.matrix.n_out),
      attention(target.lane.kernels, model.block.attention(), target.lane.team->size(), kEagleStateBytes),
      features(Floats(int64_t{kMaxRows} * work.shape.n_other)),
      tokens(Floats(int64_t{kMaxRows} * work.shape.n_embd)),
      joined(Floats(int64_t{kMaxRows} * 2 * work.shape.n_embd)) {}

EagleForward::EagleForward(std::shared_ptr<const EagleModel> model, const SharedParts& target, KvCache* cache,
                           int first_seen, std::shared_ptr<Scratch> scratch, const ReindexedSet* set)
    : model_(std::move(model)),
      target_(target),
      rope_(model_->block.rope),
      cache_(cache),
      first_seen_(first_seen),
      set_(set),
      tree_(MakeHostPool(cache->Span(0).layout, 1)),
      scratch_(scratch != nullptr ? std::move(scratch) : MakeScratch(*model_, target)) {}

size_t EagleForward::bytes() const { return tree_.bytes() + scratch_->bytes(); }

size_t EagleForward::ScratchBytes(const EagleModel& model, int64_t n_logits) {
  const BlockShape shape = ShapeOf(model.block, model.n_taps());
  const int64_t floats = shape.n_other + 3 * shape.n_embd + n_logits;
  return Z(kMaxRows) * (Workspace::RowBytes(shape, kAllInputForms) + Z(floats) * sizeof(float)) +
         kEagleStateBytes;
}

// The rows of a pass: rotary angles, and their embeddings and features where the first product reads them.
Status EagleForward::Embed(std::span<const EagleRow> rows, bool drafted) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  rows_.assign(rows.begin(), rows.end());
  const size_t d = Z(width()), n_taps = Z(model_->n_taps());
  for (size_t r = 0; r < rows_.size(); ++r) {
    const EagleRow& row = rows_[r];
    float* features = scratch_->features.as<float>();
    float* token = scratch_->tokens.as<float>() + r * d;
    float* x = work_.x.as<float>() + r * d;
    if (!model_->is_eagle3()) {
      token = features + r * 2 * d;
      std::memcpy(token + d, row.feature[0], d * sizeof(float));
      if (!model_->fc_bias.empty()) std::memcpy(x, model_->fc_bias.data(), d * sizeof(float));
    } else if (drafted) {
      std::memcpy(x, row.feature[0], d * sizeof(float));
    } else {
      for (size_t tap = 0; tap < n_taps; ++tap) {
        std::memcpy(features + (r * n_taps + tap) * d, row.feature[tap], d * sizeof(float));
      }
    }
    LS_TRY(target_.Embed(row.token, token));
    rope_.Row(row.position, work_.Angles(0, static_cast<int>(r)));
  }
  return {};
}

void EagleForward::NormaliseFused(ThreadTeam::Worker& worker, float* features, int width) const {
  if (model_->fused_norm.empty()) return;
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    float* row = features + Z(r) * Z(width);
    target_.lane.kernels->rms_norm(row, model_->fused_norm.data(), width, work_.shape.rms_eps, row);
  }
  worker.Barrier();
}

// The residual stream in work_.x, and what attention reads, both whole after a barrier.
AttentionInput EagleForward::Compose(ThreadTeam::Worker& worker, bool drafted) {
  const int d = width(), n_features = model_->is_eagle3() ? model_->n_taps() : 2;
  const bool through_fc = !model_->is_eagle3() || !drafted;
  float* x = work_.x.as<float>();
  if (through_fc) {
    float* features = scratch_->features.as<float>();
    NormaliseFused(worker, features, n_features * d);
    Convert(worker, work_, features, n_features * d, n_rows());
    worker.Barrier();
    const std::array fc = {LinearJob{&model_->fc.matrix(), x, !model_->fc_bias.empty()}};
    Project(worker, work_, fc, features, n_features * d, n_rows());
    worker.Barrier();
  }
  if (!model_->is_eagle3()) {
    Convert(worker, work_, x, d, n_rows());
    return {x, d};
  }
  float* joined = scratch_->joined.as<float>();
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    float* token = joined + Z(r) * 2 * Z(d);
    float* feature = token + d;
    float* residual = x + Z(r) * Z(d);
    const float eps = work_.shape.rms_eps;
    target_.lane.kernels->rms_norm(scratch_->tokens.as<float>() + Z(r) * Z(d), model_->token_norm.data(), d,
                                   eps, token);
    target_.lane.kernels->rms_norm(residual, model_->feature_norm.data(), d, eps, feature);
    if (model_->residual_is_normed) std::memcpy(residual, feature, Z(d) * sizeof(float));
    ConvertRow(work_, joined, 2 * d, r);
  }
  return {joined, 2 * d};
}

Status EagleForward::Append(std::span<const EagleRow> rows) {
  for (size_t begin = 0; begin < rows.size(); begin += Z(kMaxRows)) {
    const auto part = rows.subspan(begin, std::min(Z(kMaxRows), rows.size() - begin));
    LS_TRY(Embed(part, /*drafted=*/false));
    LS_ASSIGN(KvTransaction slots, cache_->Begin(n_rows()));
    const KvWriter writer = slots.Writer(0);
    places_.clear();
    for (int r = 0; r < n_rows(); ++r) places_.push_back({.to = &writer, .slot = slots.slot() + r});
    target_.lane.team->Run([&](ThreadTeam::Worker& worker) {
      const AttentionInput input = Compose(worker, /*drafted=*/false);
      worker.Barrier();
      StoreKeysOf(worker, work_, input, model_->attention.weights(), places_, 0);
    });
    slots.CommitAll();
  }
  return {};
}

MeetingRows::Key EagleRows::key() const { return {.model = forward->model(), .form = drafted ? 1 : 0}; }

Status EagleForward::RunPass(std::span<const Piece> pieces) {
  std::vector<EagleRow> rows;
  for (const Piece& piece : pieces) rows.insert(rows.end(), piece.rows().begin(), piece.rows().end());
  const bool drafted = pieces.front().of->drafted;
  LS_TRY(Embed(rows, drafted));
  PlanAttention(pieces);
  next_.resize(rows.size());
  const int k = MostWanted(pieces);
  target_.lane.team->Run([&](ThreadTeam::Worker& worker) {
    const AttentionInput input = Compose(worker, drafted);
    worker.Barrier();
    AddAttentionOf(worker, work_, input, model_->attention.weights(), places_, 0, attention_);
    AddMlp(worker, work_, model_->mlp.weights(model_->mlp_norm), n_rows());
    Head(worker, k, next_);
  });
  const float* x = work_.x.as<float>();
  for (const Piece& piece : pieces) {
    std::memcpy(piece.of->outputs + piece.begin * Z(width()), x, piece.n * Z(width()) * sizeof(float));
    x += piece.n * Z(width());
  }
  HandOut(pieces, std::span(next_));
  return {};
}

AttentionSegment EagleForward::ViewRows(std::span<const EagleRow> rows) {
  int n_slots = 0;
  const int n_stored = set_ != nullptr ? set_->n_slots() : cache_->n_slots();
  const int first_seen = set_ != nullptr ? 0 : std::min(first_seen_, n_stored);
  views_.clear();
  for (const EagleRow& row : rows) {
    LS_CHECK(!row.path.empty());
    views_.push_back({.begin = first_seen, .end = n_stored, .tail = row.path});
    for (const int32_t slot : row.path) n_slots = std::max(n_slots, slot + 1);
  }
  tree_.Reserve(n_slots);
  tree_writer_ = tree_.writer();
  const KvSpan stored = set_ != nullptr ? set_->Span(0) : cache_->Span(0);
  return {.stored = stored, .tail = tree_.span(), .tail_begin = 0, .tail_end = n_slots, .rows = views_};
}

void EagleForward::PlanAttention(std::span<const Piece> pieces) {
  segments_.clear();
  for (const Piece& piece : pieces) segments_.push_back(piece.of->forward->ViewRows(piece.rows()));
  attention_.Plan(segments_);
  places_.clear();
  for (const Piece& piece : pieces) {
    for (const EagleRow& row : piece.rows()) {
      const auto r = static_cast<int>(places_.size());
      places_.push_back(
          {.query = attention_.Place(r), .to = &piece.of->forward->tree_writer_, .slot = row.path.back()});
    }
  }
}

void EagleForward::Head(ThreadTeam::Worker& worker, int k, std::span<std::vector<TokenScore>> next) {
  const float* x = work_.x.as<float>();
  if (model_->is_eagle3()) {
    Normalise(worker, work_, x, model_->output_norm, n_rows());
    x = work_.normed.as<float>();
  } else {
    Convert(worker, work_, x, width(), n_rows());
  }
  worker.Barrier();
  TopOfHead(worker, work_, model_->head, x, n_rows(), scratch_->logits.as<float>(), k, next);
}

}  // namespace longspec
