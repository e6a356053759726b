// SPDX-License-Identifier: Apache-2.0
//
// The smallest draft that is learned, whole: its file, its passes, its drafter, its entry in the table of
// drafters. An example of what it takes to add one (HACKING.md); the library does not know it.
//
// With e what the target's embedding holds of a token, and h the target's final state before the newest one,
//   state = A [e; h]             of the newest token, the root of a tree
//   state = A [e; its parent's]  of every other node
// and the target's head makes of a node's state the logits after it.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/size.h"
#include "base/status_macros.h"
#include "draft_model/draft_lane.h"
#include "draft_model/last_state_drafter.h"
#include "draft_model/learned_draft.h"

namespace longspec {

// --- What a file holds.

struct ToyModel : LoadedFromFile<ToyModel> {
  static constexpr std::string_view kKind = "toy";
  static const DraftKind kFile;

  static Result<ToyModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
    LS_TRY(CheckDraftWidths(checkpoint, target));
    ToyModel model = Of(checkpoint);
    model.n_embd = target.n_embd;
    return model;
  }
  std::vector<DraftPart> Parts() {
    return {{.tensor = "linear.weight", .n_in = int64_t{2} * n_embd, .n_out = n_embd, .matrix = &linear}};
  }
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  int n_embd = 0;
  DraftMatrix linear;  // A (n_embd, 2 n_embd)
};

// A file says that it is one: {"longspec_draft": "toy"}.
inline constexpr DraftKind ToyModel::kFile = {
    .name = kKind, .recognise = [](const DraftCheckpoint&) { return false; }, .tensors = TensorsOf<ToyModel>};

// --- A pass, over nodes of the trees of several sequences.

struct ToyRow {
  int32_t token = 0;
  const float* before = nullptr;  // (n_embd): the state that it goes on from
  float* state = nullptr;         // (n_embd): where its own goes
};

class ToyForward;
struct ToyRows final : ForwardRows<ToyRows, ToyForward, ToyRow> {
  using ForwardRows::ForwardRows;
  Key key() const override;
};

class ToyForward {
 public:
  static constexpr int kMaxRows = 16;

  // [e; before] takes the place of an MLP's rows, which are twice as wide.
  static LaneSize Size(int n_embd, int64_t n_logits) {
    return {.shape = {.n_embd = n_embd, .n_ff = 2 * n_embd}, .max_rows = kMaxRows, .n_logits = n_logits};
  }
  static std::shared_ptr<DraftLane> MakeLane(const ToyModel& model, const SharedParts& target) {
    const std::vector<const DraftMatrix*> matrices = {&model.linear, &model.head.matrix};
    return std::make_shared<DraftLane>(target, Size(model.n_embd, model.head.matrix.n_out()), matrices);
  }

  ToyForward(std::shared_ptr<const ToyModel> model, std::shared_ptr<DraftLane> lane)
      : model_(std::move(model)), lane_(std::move(lane)) {}

  const ToyModel* model() const { return model_.get(); }
  size_t bytes() const { return lane_->bytes(); }

 private:
  friend ToyRows::ForwardRows;

  Status RunPass(std::span<const RowPiece<ToyRows>> pieces) {
    const int n = model_->n_embd, k = MostWanted(pieces);
    const size_t width = Z(n);
    float *joined = lane_->hidden(), *x = lane_->x();
    states_.clear();
    for (const auto& piece : pieces) {
      for (const ToyRow& row : piece.rows()) {
        float* const to = joined + states_.size() * 2 * width;
        LS_TRY(lane_->Embed(row.token, to));
        std::memcpy(to + width, row.before, width * sizeof(float));
        states_.push_back(row.state);
      }
    }
    const auto n_rows = static_cast<int>(states_.size());
    next_.resize(states_.size());
    lane_->Run(n_rows, [&](DraftPass& pass) {
      pass.Multiply(model_->linear, pass.Of(joined, 2 * n), x);
      pass.Top(pass.Of(x, n), model_->head, k, next_);
    });
    for (size_t r = 0; r < states_.size(); ++r) std::memcpy(states_[r], x + r * width, width * sizeof(float));
    HandOut(pieces, std::span(next_));
    return {};
  }

  const std::shared_ptr<const ToyModel> model_;
  const std::shared_ptr<DraftLane> lane_;
  std::vector<float*> states_;  // of one pass, as is what follows
  std::vector<std::vector<TokenScore>> next_;
};

inline MeetingRows::Key ToyRows::key() const { return {.model = forward->model()}; }

// What drafting takes besides weights: of a text it keeps nothing but a state.
inline DraftMemory ToyModel::Working(const SpeculationOptions&, const TargetFacts& target,
                                     int64_t n_logits) const {
  return {.fixed = DraftLane::Bytes(ToyForward::Size(target.sizes.n_embd, n_logits))};
}

// --- Trees of one sequence.

class ToyDrafter final : public LastStateDrafter {
 public:
  ToyDrafter(const std::shared_ptr<const ToyModel>& model, TreeShape shape, std::shared_ptr<DraftLane> lane)
      : LastStateDrafter(std::move(shape), model->n_embd), forward_(model, std::move(lane)) {}

  std::string_view name() const override { return ToyModel::kKind; }
  size_t bytes() const override {
    return forward_.bytes() + LastStateDrafter::bytes() + states_.capacity() * sizeof(float);
  }

 private:
  static constexpr int kMostLevels = 8;  // each of them is less sure than the one before

  Result<int> BeginTree(std::span<const int32_t> committed) override {
    return KnowsStateOf(committed) ? kMostLevels : 0;
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    const size_t width = Z(forward_.model()->n_embd);
    states_.resize(nodes.size() * width);
    rows_.clear();
    for (const int32_t at : which) {
      const GrownNode& node = nodes[Z(at)];
      rows_.push_back({.token = node.token,
                       .before = node.parent < 0 ? state() : states_.data() + Z(node.parent) * width,
                       .state = states_.data() + Z(at) * width});
    }
    ToyRows rows(&forward_, rows_, k, &next);
    co_return co_await Meet(rows);
  }

  ToyForward forward_;
  std::vector<float> states_;  // of the tree that is grown: (n_nodes, n_embd)
  std::vector<ToyRow> rows_;
};

// --- What the table of drafters has to know.

inline DrafterResult MakeToy(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<ToyModel>(options, context, "best", [&](auto model, TreeShape shape) {
    return std::make_unique<ToyDrafter>(model, std::move(shape),
                                        LearnedLane<ToyForward>(options, context, *model));
  });
}

inline constexpr DrafterEntry kToyDrafter = LearnedEntry<ToyModel>(
    {.summary = "the guesses of one linear layer, from the model's last hidden state and a token",
     .reads_states = true,
     .make = MakeToy});

}  // namespace longspec
