// SPDX-License-Identifier: Apache-2.0
//
// LongSpec (arXiv 2502.17421): trees grown by a one-block draft model that reads the target's last-layer keys
// and values, so that the draft's own memory is as small at 64,000 positions as at 512. One with keys of its
// own keeps those of one layer, made of the target's final hidden states. Its
// probabilities pass what the target's will pass, dice included (draft/foresight.h).
#include "draft_model/longspec.h"

#include <algorithm>
#include <optional>
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
#include "draft_model/draft_models.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"
#include "draft_model/trained_range.h"
#include "kv/kv_mover.h"
#include "kv/layer_view.h"

namespace longspec {
namespace {

constexpr int kMaxLongspecWindow = 1 << 16;
// Of attention's partial states, whatever the context: the draft's memory is constant.
constexpr size_t kLongspecStateBytes = 1 << 20;

// As its configuration says, or 512.
Result<int> ReadWindow(const DraftCheckpoint& checkpoint) {
  LS_ASSIGN(const int window, checkpoint.keys.Size("longspec_window"));
  if (window > kMaxLongspecWindow) {
    return Unsupported(checkpoint.path + ": a window of " + std::to_string(window) + " tokens, at most " +
                       std::to_string(kMaxLongspecWindow) + " are supported");
  }
  return window > 0 ? window : LongspecModel().window;
}

}  // namespace

constexpr DraftKind LongspecModel::kFile = {
    .name = kKind,
    .recognise = [](const DraftCheckpoint& c) { return c.HasPrefix("cross_attn."); },
    .tensors = TensorsOf<LongspecModel>};

Result<LongspecModel> LongspecModel::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  LS_TRY(CheckDraftSharesKeys(checkpoint, target));
  LongspecModel model = Of(checkpoint);
  LS_ASSIGN(model.window, ReadWindow(checkpoint));
  model.block = {.shape = BlockOf(target), .rope = target.rope};
  LS_ASSIGN(model.block.shape.n_ff, DraftRowsOf(checkpoint, "mlp.up_proj.weight", "MLP width"));
  LS_ASSIGN(model.own_keys, checkpoint.keys.Flag("longspec_own_keys", false));
  for (const char* tensor : {"cross_attn.k_proj.weight", "cross_attn.v_proj.weight"}) {
    if (!model.own_keys || checkpoint.Find(tensor) != nullptr) continue;
    return Corrupt(checkpoint.path + ": tensor " + tensor +
                   " is missing, which a draft model with \"longspec_own_keys\" has");
  }
  return model;
}

std::vector<DraftPart> LongspecModel::Parts() {
  constexpr DraftRows kRotated = DraftRows::kAsTargetRotates;
  const BlockShape& shape = block.shape;
  const int64_t d = shape.n_embd;
  std::vector<DraftPart> parts = self.Parts(shape, "self_attn.", d, kRotated);
  for (DraftPart& part : parts) part.required = true;
  for (DraftPart& part : cross.Parts(shape, "cross_attn.", d, kRotated)) {
    const bool of_keys = part.matrix == &cross.k || part.matrix == &cross.v || part.vector == &cross.k_bias ||
                         part.vector == &cross.v_bias;
    // Checkpoints have them. Where they are not used they are not in memory.
    part.required = !of_keys;
    if (of_keys && !own_keys) part.matrix = nullptr, part.vector = nullptr;
    parts.push_back(std::move(part));
  }
  Append(mlp.Parts(shape, "mlp."), &parts);
  parts.push_back({.tensor = "input_layernorm.weight", .n_in = d, .vector = &self_norm});
  parts.push_back({.tensor = "post_self_attention_layernorm.weight", .n_in = d, .vector = &cross_norm});
  parts.push_back({.tensor = "post_cross_attention_layernorm.weight", .n_in = d, .vector = &mlp_norm});
  return parts;
}

// Its activations and the ring of its window, whatever the context. One layer's keys and values of the whole
// context, if they are its own, or a copy of the target's because these lie on a card (kv/layer_view.h).
DraftMemory LongspecModel::Working(const SpeculationOptions&, const TargetFacts& target,
                                   int64_t n_logits) const {
  DraftMemory plan;
  if (own_keys) {
    plan = BlockMemory(block, target, 0);
  } else if (target.is_on_card) {
    plan.kv_chunk = target.cache.layer_bytes();
  }
  plan.fixed += DraftLane::Bytes(LongspecForward::Size(block, n_logits)) +
                Z(LongspecForward::RingChunks(window)) * target.cache.layer_bytes();
  return plan;
}

std::shared_ptr<DraftLane> LongspecForward::MakeLane(const LongspecModel& m, const SharedParts& target) {
  const std::vector<const DraftMatrix*> matrices = {&m.self.q,   &m.self.k,     &m.self.v,   &m.self.o,
                                                    &m.cross.q,  &m.cross.o,    &m.mlp.gate, &m.mlp.up,
                                                    &m.mlp.down, &m.head.matrix};
  return std::make_shared<DraftLane>(target, Size(m.block, m.head.matrix.n_out()), matrices);
}

LaneSize LongspecForward::Size(const DraftBlock& block, int64_t n_logits) {
  const LaneSize::Attending one = {.shape = block.attention(), .state_bytes = kLongspecStateBytes};
  return {.shape = block.shape, .max_rows = kMaxRows, .n_logits = n_logits, .attentions = {one, one}};
}

LongspecForward::LongspecForward(std::shared_ptr<const LongspecModel> model, const KvLayout& layout,
                                 std::shared_ptr<DraftLane> lane)
    : model_(std::move(model)),
      rope_(model_->block.rope),
      n_ring_chunks_(RingChunks(model_->window)),
      ring_(MakeHostPool(layout, 1)),
      tree_(MakeHostPool(layout, 1)),
      lane_(std::move(lane)) {
  ring_.Reserve(n_ring_chunks() * kKvChunk);
  ring_writer_ = ring_.writer();
}

size_t LongspecForward::bytes() const { return ring_.bytes() + tree_.bytes() + lane_->bytes(); }

// The rows of a pass: their embeddings and rotary angles.
Status LongspecForward::Embed(std::span<const LongspecRow> rows) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  rows_.assign(rows.begin(), rows.end());
  for (int r = 0; r < n_rows(); ++r) {
    LS_TRY(lane_->Embed(rows_[Z(r)].token, lane_->x(r)));
    lane_->SetAngles(r, rope_, rows_[Z(r)].position);
  }
  return {};
}

// Only keys and values are computed: no attention runs over the prompt.
Result<int> LongspecForward::Extend(std::span<const int32_t> committed) {
  const auto end = static_cast<int>(committed.size());
  if (ring_end_ > end) Reset();
  const int first = std::max({ring_end_, end - model_->window - 1, 0});
  std::vector<LongspecRow> rows;
  for (int begin = first; begin < end; begin += kMaxRows) {
    rows.clear();
    for (int p = begin; p < std::min(end, begin + kMaxRows); ++p) {
      rows.push_back({.token = committed[Z(p)], .position = p});
    }
    LS_TRY(Embed(rows));
    self_places_.clear();
    PlaceKeys(rows, &self_places_);
    lane_->Run(n_rows(), [&](DraftPass& pass) {
      pass.StoreKeys(pass.Norm(lane_->x(), model_->self_norm), model_->self, self_places_);
    });
  }
  ring_end_ = end;
  return end - first;
}

void LongspecForward::ReserveSlots(int n_slots) {
  tree_.Reserve(n_slots);
  tree_writer_ = tree_.writer();
}

MeetingRows::Key LongspecRows::key() const { return {.model = forward->model()}; }

Status LongspecForward::RunPass(std::span<const Piece> pieces) {
  std::vector<LongspecRow> rows;
  for (const Piece& piece : pieces) rows.insert(rows.end(), piece.rows().begin(), piece.rows().end());
  LS_TRY(Embed(rows));
  PlanAttention(pieces);
  next_.resize(rows.size());
  const int k = MostWanted(pieces);
  const LongspecModel& m = *model_;
  float* const x = lane_->x();
  lane_->Run(n_rows(), [&](DraftPass& pass) {
    pass.AddAttention(pass.Norm(x, m.self_norm), m.self, self_places_, self_);
    pass.AddCrossAttention(pass.Norm(x, m.cross_norm), m.cross, cross_places_, cross_);
    pass.AddMlp(m.mlp, m.mlp_norm);
    // The residual stream meets the head as it is: no final norm, neither the draft's nor the target's.
    pass.Top(pass.Of(x, m.block.shape.n_embd), m.head, k, next_);
  });
  HandOut(pieces, std::span(next_));
  return {};
}

// What each of its rows sees. A node comes after the last committed token, which is the root and in the ring
// as well. Ring and path together reach back as far as the window: position - window.
void LongspecForward::ViewRows(std::span<const LongspecRow> rows, const KvSpan& target,
                               std::vector<AttentionSegment>* self, std::vector<AttentionSegment>* cross) {
  self_views_.clear();
  int n_slots = 0;
  for (const LongspecRow& row : rows) {
    const int end = std::min(row.position + 1, ring_end_);
    const size_t n_path = std::min(row.path.size(), Z(model_->window) + 1);
    self_views_.push_back({.begin = std::clamp(row.position - model_->window, 0, end),
                           .end = end,
                           .tail = row.path.last(n_path)});
    for (const int32_t slot : row.path) n_slots = std::max(n_slots, slot + 1);
  }
  cross_views_.assign(rows.size(), {.begin = 0, .end = target.n_committed});
  ReserveSlots(n_slots);
  self->push_back({.stored = ring_.span(),
                   .n_ring_chunks = n_ring_chunks(),
                   .tail = tree_.span(),
                   .tail_begin = 0,
                   .tail_end = n_slots,
                   .rows = self_views_});
  cross->push_back({.stored = target, .rows = cross_views_});
}

void LongspecForward::PlanAttention(std::span<const Piece> pieces) {
  self_segments_.clear();
  cross_segments_.clear();
  self_places_.clear();
  cross_places_.clear();
  for (const Piece& piece : pieces) {
    LongspecForward& own = *piece.of->forward;
    own.ViewRows(piece.rows(), piece.of->target, &self_segments_, &cross_segments_);
    own.PlaceKeys(piece.rows(), &self_places_);
  }
  self_.Plan(self_segments_);
  cross_.Plan(cross_segments_);
  for (int r = 0; r < n_rows(); ++r) {
    self_places_[Z(r)].query = self_.Place(r);
    cross_places_.push_back({.query = cross_.Place(r)});
  }
}

// Keys and values go into the ring or the tree.
void LongspecForward::PlaceKeys(std::span<const LongspecRow> rows, std::vector<RowPlace>* places) const {
  for (const LongspecRow& row : rows) {
    const bool in_ring = row.slot < 0;
    places->push_back({.to = in_ring ? &ring_writer_ : &tree_writer_,
                       .slot = in_ring ? row.position % (n_ring_chunks() * kKvChunk) : row.slot});
  }
}

namespace {

class LongspecDrafter final : public GrowingDrafter {
 public:
  // `keys` and their lane: of a draft with keys of its own.
  LongspecDrafter(std::shared_ptr<const LongspecModel> model, TreeShape shape, int n_layers,
                  const KvCache* cache, std::shared_ptr<DraftLane> lane, std::shared_ptr<DraftKeys> keys,
                  std::shared_ptr<DraftLane> lane_of_keys)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        cache_(cache),
        range_(model_->path, model_->trained_positions),
        forward_(model_, cache->Span(0).layout, std::move(lane)) {
    if (model_->own_keys) {
      own_keys_.emplace(model_->block, std::move(keys), cache->capacity(), std::move(lane_of_keys));
    } else {
      last_layer_ = cache->mover().NewLayerView(cache->Span(0).layout, n_layers - 1);
    }
  }

  std::string_view name() const override { return LongspecModel::kKind; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return {.final_hidden = own_keys_.has_value()}; }

  Status Follow(std::span<const int32_t> committed) override {
    forward_.Reset();
    if (own_keys_) return own_keys_->Follow(committed);
    last_layer_->Truncate(0);  // tokens, keys and values are read when a tree is grown
    return {};
  }

  // Its tokens are read from the sequence when the next tree is grown.
  Status Read(const CommittedRows& rows) override {
    if (!own_keys_ || rows.output == nullptr) return {};
    return own_keys_->Read(rows, rows.output->final_hidden, model_->cross, /*norm=*/{});
  }

  size_t bytes() const override {
    return forward_.bytes() + (own_keys_ ? own_keys_->bytes() : last_layer_->bytes());
  }

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
    } else {
      LS_TRY(last_layer_->Follow(*cache_));
    }
    root_position_ = cache_->length();
    paths_.clear();
    n_slots_ = 0;
    return left;
  }

  KvSpan Keys() const { return own_keys_ ? own_keys_->kept() : last_layer_->span(); }

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
  TrainedRange range_;
  LongspecForward forward_;
  std::optional<BlockForward> own_keys_;
  std::unique_ptr<LayerView> last_layer_;  // the target's; null: it has keys of its own

  // The tree that is being grown.
  int root_position_ = 0, n_slots_ = 0;
  std::vector<std::vector<int32_t>> paths_;  // per node that was run: slots of its ancestors and itself
  std::vector<LongspecRow> rows_;
};

// Where keys of a draft's own are made: nothing else is of them.
struct OwnKeys {
  static std::shared_ptr<DraftLane> MakeLane(const LongspecModel& model, const SharedParts& target) {
    constexpr int64_t kNoHead = 0;
    return std::make_shared<DraftLane>(target, BlockForward::Size(model.block, kNoHead),
                                       std::vector<const DraftMatrix*>{&model.cross.k, &model.cross.v});
  }
};

DrafterResult MakeLongspec(const SpeculationOptions& options, const DraftContext& context) {
  LS_CHECK(context.cache != nullptr);
  if (context.cache->exactness() != Exactness::kLossless) {
    return Unsupported("--spec-type " + options.type +
                       ": reads the target's whole cache, and this one keeps a part");
  }
  return MakeLearned<LongspecModel>(options, context, "beam", [&](auto model, TreeShape shape) {
    auto lane = LearnedLane<LongspecForward>(options, context, *model);
    std::shared_ptr<DraftKeys> keys;
    std::shared_ptr<DraftLane> lane_of_keys;
    if (model->own_keys) {
      keys = LearnedKeys(options, context, model->block);
      lane_of_keys = LearnedLane<OwnKeys>(options, context, *model, /*nth=*/1);
    }
    return std::make_unique<LongspecDrafter>(std::move(model), std::move(shape),
                                             context.target->shared_parts()->sizes->n_layer, context.cache,
                                             std::move(lane), std::move(keys), std::move(lane_of_keys));
  });
}

}  // namespace

constexpr DrafterEntry kLongspecDrafter = LearnedEntry<LongspecModel>(
    {.summary = "the guesses of a LongSpec draft model, which reads the model's last keys and values",
     .reads_states = true,
     .make = MakeLongspec});

}  // namespace longspec
