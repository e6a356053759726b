// SPDX-License-Identifier: Apache-2.0
//
// Trees grown by a draft that attends from guessed tokens to the target's final hidden states. Guesses before
// a guess are seen as the draft's own states, which are dropped when the round is over: the states that are
// kept are the target's.
#include "draft_model/beagle.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_models.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"
#include "draft_model/trained_range.h"

namespace longspec {
namespace {

constexpr char kBeagleLayer[] = "layer";
constexpr char kStateNorm[] = "layer.kv_layernorm.weight";

// "kv_norm" and its tensor come together.
Status CheckStateNorm(const DraftCheckpoint& checkpoint) {
  const bool has_tensor = checkpoint.Find(kStateNorm) != nullptr;
  LS_ASSIGN(const bool says, checkpoint.keys.Flag("kv_norm", has_tensor));
  if (says == has_tensor) return {};
  return Corrupt(checkpoint.path + ": \"kv_norm\" is " +
                 (says ? "true, but there is no" : "false, but there is a") + " tensor " + kStateNorm);
}

}  // namespace

constexpr DraftKind BeagleModel::kFile = {
    .name = kKind,
    .recognise = [](const DraftCheckpoint& c) { return c.HasPrefix("layer.cross_attn."); },
    .tensors = TensorsOf<BeagleModel>};

Result<BeagleModel> BeagleModel::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  BeagleModel model = Of(checkpoint);
  LS_ASSIGN(model.concat, checkpoint.keys.Flag("concat", true));
  LS_TRY(CheckStateNorm(checkpoint));
  LS_ASSIGN(model.layer.block, ReadDraftLayerBlock(checkpoint, target, kBeagleLayer));
  return model;
}

std::vector<DraftPart> BeagleModel::Parts() {
  std::vector<DraftPart> parts = layer.Parts(kBeagleLayer, "cross_attn");
  parts.push_back(
      {.tensor = kStateNorm, .n_in = layer.block.shape.n_embd, .vector = &state_norm, .required = false});
  return parts;
}

DraftMemory BeagleModel::Working(const SpeculationOptions&, const TargetFacts& target,
                                 int64_t n_logits) const {
  return BlockMemory(layer.block, target, n_logits);
}

BeagleForward::BeagleForward(std::shared_ptr<const BeagleModel> model, std::shared_ptr<DraftKeys> keys,
                             int capacity, std::shared_ptr<DraftLane> lane)
    : model_(std::move(model)), block_(model_->layer.block, std::move(keys), capacity, std::move(lane)) {}

Status BeagleForward::Read(const CommittedRows& rows) {
  return block_.Read(rows, rows.output->final_hidden, model_->layer.attention, model_->state_norm);
}

Status BeagleForward::BeginTree() {
  LS_TRY(block_.Settle());
  block_.ClearTree();
  nodes_.clear();
  n_projected_ = 0;
  return {};
}

const float* BeagleForward::state(int node) const { return states_.data() + Z(node) * width(); }

MeetingRows::Key BeagleRows::key() const { return {.model = forward->model()}; }

void BeagleForward::MakeRoom(std::span<const BeagleRow> rows) {
  for (const BeagleRow& row : rows) {
    LS_CHECK(row.parent < row.node);
    if (nodes_.size() <= Z(row.node)) nodes_.resize(Z(row.node) + 1);
  }
  if (states_.size() < nodes_.size() * width()) states_.resize(nodes_.size() * width());
}

// Those that have no slot so far; they get one.
std::span<const BlockForward::Row> BeagleForward::ParentsToProject(std::span<const BeagleRow> rows) {
  rows_.clear();
  parents_.clear();
  for (const BeagleRow& row : rows) {
    if (row.parent < 0 || nodes_[Z(row.parent)].slot >= 0) continue;
    Node& parent = nodes_[Z(row.parent)];
    parent.slot = block_.NewSlot();
    rows_.push_back({.position = parent.position, .slot = parent.slot});
    parents_.push_back(row.parent);
  }
  n_projected_ += static_cast<int>(parents_.size());
  return rows_;
}

// Keys and values of the parents' states, those that have none yet.
void BeagleForward::ProjectParents(std::span<const Piece> pieces) {
  parts_.clear();
  for (const Piece& piece : pieces) {
    BeagleForward& of = *piece.of->forward;
    const auto rows = of.ParentsToProject(piece.rows());
    if (!rows.empty()) parts_.push_back({.of = &of.block_, .rows = rows});
  }
  if (parts_.empty()) return;
  block_.PlaceKeys(parts_);
  DraftLane& lane = block_.lane();
  int r = 0;
  for (const Piece& piece : pieces) {
    const BeagleForward& of = *piece.of->forward;
    for (const int parent : of.parents_) {
      std::memcpy(lane.x(r++), of.state(parent), width() * sizeof(float));
    }
  }
  lane.Run(r, [&](DraftPass& pass) {
    pass.StoreKeys(pass.Norm(lane.x(), model_->state_norm), model_->layer.attention, block_.places());
  });
}

std::span<const BlockForward::Row> BeagleForward::Place(std::span<const BeagleRow> rows) {
  rows_.clear();
  for (const BeagleRow& row : rows) {
    Node& node = nodes_[Z(row.node)];
    node = {.position = row.position, .slot = -1, .ancestors = {}};
    if (model_->concat && row.parent >= 0) {
      node.ancestors = nodes_[Z(row.parent)].ancestors;
      node.ancestors.push_back(nodes_[Z(row.parent)].slot);
    }
    rows_.push_back({.position = row.position, .slot = -1, .tail = node.ancestors});
  }
  return rows_;
}

Status BeagleForward::RunPass(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) piece.of->forward->MakeRoom(piece.rows());
  if (model_->concat) ProjectParents(pieces);
  parts_.clear();
  for (const Piece& piece : pieces) {
    BeagleForward& of = *piece.of->forward;
    parts_.push_back({.of = &of.block_, .rows = of.Place(piece.rows())});
  }
  block_.Place(parts_);
  DraftLane& lane = block_.lane();
  int n_rows = 0;
  for (const Piece& piece : pieces) {
    for (const BeagleRow& row : piece.rows()) {
      LS_TRY(lane.Embed(row.token, lane.x(n_rows++)));
    }
  }
  next_.resize(Z(n_rows));
  const int k = MostWanted(pieces);
  float* const states = lane.x();
  const DraftLayer& layer = model_->layer;
  lane.Run(n_rows, [&](DraftPass& pass) {
    pass.AddCrossAttention(pass.Norm(states, layer.attention_norm), layer.attention, block_.places(),
                           block_.attention());
    pass.AddMlp(layer.mlp, layer.mlp_norm);
    pass.Top(pass.Of(states, layer.block.shape.n_embd), model_->head, k, next_);
  });
  const float* x = states;
  for (const Piece& piece : pieces) {
    for (const BeagleRow& row : piece.rows()) {
      std::memcpy(piece.of->forward->states_.data() + Z(row.node) * width(), x, width() * sizeof(float));
      x += width();
    }
  }
  HandOut(pieces, std::span(next_));
  return {};
}

namespace {

class BeagleDrafter final : public GrowingDrafter {
 public:
  BeagleDrafter(const std::shared_ptr<const BeagleModel>& model, TreeShape shape, const KvCache& cache,
                std::shared_ptr<DraftKeys> keys, std::shared_ptr<DraftLane> lane)
      : GrowingDrafter(std::move(shape)),
        cache_(cache),
        range_(model->path, model->trained_positions),
        forward_(model, std::move(keys), cache.capacity(), std::move(lane)) {}

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

DrafterResult MakeBeagle(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<BeagleModel>(options, context, "eagle2", [&](auto model, TreeShape shape) {
    return std::make_unique<BeagleDrafter>(model, std::move(shape), *context.cache,
                                           LearnedKeys(options, context, model->layer.block),
                                           LearnedLane<BeagleForward>(options, context, *model));
  });
}

}  // namespace

constexpr DrafterEntry kBeagleDrafter = LearnedEntry<BeagleModel>(
    {.summary = "the guesses of a Beagle draft model, which attends to the model's final hidden states",
     .reads_states = true,
     .make = MakeBeagle});

}  // namespace longspec
