// SPDX-License-Identifier: Apache-2.0
//
// Medusa (arXiv 2401.10774): heads that predict the tokens further on from the target's final hidden state at
// the last computed position (draft/tree_growth.h). A tree is the best products of their probabilities, or
// the paper's fixed one (--spec-tree medusa). Verification is that of all drafters, and exact: the paper's
// typical acceptance, which is not, is left out.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_lane.h"
#include "draft_model/last_state_drafter.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"

namespace longspec {
namespace {

// With h the target's final hidden state at position p, head i (0-based) predicts the token at p + i + 2:
//   logits = W_i (h + silu(A_i h + b_i))
// with W_i a head of its own, or the target's (or rows of it).
struct MedusaModel : LoadedFromFile<MedusaModel> {
  static constexpr std::string_view kKind = "medusa";
  static const DraftKind kFile;
  static Result<MedusaModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  struct Head {
    DraftMatrix linear;       // A (n_embd, n_embd)
    std::vector<float> bias;  // b (n_embd)
    DraftHead own;            // W of its own, if it has one
  };

  int n_embd = 0, n_vocab = 0;
  std::vector<Head> heads;

  const DraftHead& OutputOf(const Head& of) const { return of.own.matrix.n_out() > 0 ? of.own : head; }
};

constexpr char kMedusaHeads[] = "medusa_head.";

std::string MedusaPrefix(size_t head) { return kMedusaHeads + std::to_string(head) + "."; }

size_t CountMedusaHeads(const DraftCheckpoint& checkpoint) {
  size_t n = 0;
  while (checkpoint.Find(MedusaPrefix(n) + "0.linear.weight") != nullptr) ++n;
  return n;
}

// The published files hold the list of heads alone: "0.0.linear.weight" is of head 0.
std::string RenameMedusa(const std::string& name) {
  const bool bare = !name.empty() && name[0] >= '0' && name[0] <= '9';
  return bare ? kMedusaHeads + name : name;
}

bool IsMedusa(const DraftCheckpoint& checkpoint) {
  return checkpoint.HasPrefix(kMedusaHeads) || checkpoint.keys.Has("medusa_num_heads") ||
         checkpoint.Find("0.0.linear.weight") != nullptr;
}

// As many heads as there are names for, one block each.
std::vector<DraftPart> MedusaTensors(const DraftCheckpoint& checkpoint) {
  MedusaModel model;
  do {
    model.heads.emplace_back();
  } while (checkpoint.HasPrefix(MedusaPrefix(model.heads.size())));
  return WithoutPlaces(model.Parts());
}

constexpr DraftKind MedusaModel::kFile = {
    .name = kKind, .recognise = IsMedusa, .tensors = MedusaTensors, .rename = RenameMedusa};

Result<MedusaModel> MedusaModel::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  MedusaModel model = Of(checkpoint);
  model.n_embd = target.n_embd;
  model.n_vocab = target.n_vocab;
  LS_ASSIGN(const int layers, checkpoint.keys.Size("medusa_num_layers"));
  if (layers > 1) {
    return Unsupported(checkpoint.path + ": heads of " + std::to_string(layers) +
                       " layers (\"medusa_num_layers\"); one is supported");
  }
  model.heads.resize(CountMedusaHeads(checkpoint));
  LS_ASSIGN(const int stated, checkpoint.keys.Size("medusa_num_heads"));
  if (stated > 0 && static_cast<size_t>(stated) > model.heads.size()) {
    return Corrupt(checkpoint.path + ": \"medusa_num_heads\" is " + std::to_string(stated) +
                   ", but there are tensors of " + std::to_string(model.heads.size()));
  }
  return model;
}

std::vector<DraftPart> MedusaModel::Parts() {
  std::vector<DraftPart> parts;
  for (size_t i = 0; i < heads.size(); ++i) {
    Head& of = heads[i];
    const std::string prefix = MedusaPrefix(i);
    parts.push_back(
        {.tensor = prefix + "0.linear.weight", .n_in = n_embd, .n_out = n_embd, .matrix = &of.linear});
    parts.push_back({.tensor = prefix + "0.linear.bias", .n_in = n_embd, .vector = &of.bias});
    parts.push_back({.tensor = prefix + "1.weight",
                     .n_in = n_embd,
                     .n_out = n_vocab,
                     .matrix = &of.own.matrix,
                     .required = false});
  }
  return parts;
}

int64_t MostLogits(const MedusaModel& model) {
  int64_t most = 0;
  for (const MedusaModel::Head& head : model.heads)
    most = std::max(most, model.OutputOf(head).matrix.n_out());
  return most;
}

class MedusaForward;

// One head, of as many sequences; a row is a state, (n_embd).
struct MedusaRows final : ForwardRows<MedusaRows, MedusaForward, const float*> {
  MedusaRows(MedusaForward* of, std::span<const float* const> states, int of_head, int n_best,
             std::vector<std::vector<TokenScore>>* to)
      : ForwardRows(of, states, n_best, to), head(of_head) {}

  Key key() const override;

  int head;
};

class MedusaForward {
 public:
  static constexpr int kMaxRows = 8;

  // A row is a state, and one product as wide.
  static LaneSize Size(int n_embd, int64_t n_logits) {
    return {.shape = {.n_embd = n_embd, .n_ff = n_embd}, .max_rows = kMaxRows, .n_logits = n_logits};
  }
  static std::shared_ptr<DraftLane> MakeLane(const MedusaModel& model, const SharedParts& target) {
    std::vector<const DraftMatrix*> matrices;
    for (const MedusaModel::Head& head : model.heads) {
      matrices.push_back(&head.linear);
      matrices.push_back(&model.OutputOf(head).matrix);
    }
    return std::make_shared<DraftLane>(target, Size(model.n_embd, MostLogits(model)), matrices);
  }

  MedusaForward(std::shared_ptr<const MedusaModel> model, std::shared_ptr<DraftLane> lane)
      : model_(std::move(model)), lane_(std::move(lane)) {}

  const MedusaModel* model() const { return model_.get(); }
  size_t bytes() const { return lane_->bytes(); }

 private:
  friend MedusaRows::ForwardRows;

  Status RunPass(std::span<const RowPiece<MedusaRows>> pieces) {
    const MedusaModel::Head& head = model_->heads[Z(pieces.front().of->head)];
    states_.clear();
    for (const auto& piece : pieces) {
      states_.insert(states_.end(), piece.rows().begin(), piece.rows().end());
    }
    const int n = model_->n_embd, n_rows = static_cast<int>(states_.size()), k = MostWanted(pieces);
    const size_t width = Z(n);
    float *linear = lane_->hidden(), *x = lane_->x();
    for (size_t r = 0; r < states_.size(); ++r) {
      std::memcpy(linear + r * width, head.bias.data(), width * sizeof(float));
      std::memcpy(x + r * width, states_[r], width * sizeof(float));
    }
    next_.resize(states_.size());
    lane_->Run(n_rows, [&](DraftPass& pass) {
      pass.Multiply(head.linear, pass.Of(x, n), linear, /*add=*/true);
      pass.AddSilu(linear, x);
      pass.Top(pass.Of(x, n), model_->OutputOf(head), k, next_);
    });
    HandOut(pieces, std::span(next_));
    return {};
  }

  const std::shared_ptr<const MedusaModel> model_;
  const std::shared_ptr<DraftLane> lane_;
  std::vector<const float*> states_;  // of one pass, as is what follows
  std::vector<std::vector<TokenScore>> next_;
};

MeetingRows::Key MedusaRows::key() const { return {.model = forward->model(), .form = head}; }

class MedusaDrafter final : public HeadGrowth<LastStateDrafter> {
 public:
  MedusaDrafter(const std::shared_ptr<const MedusaModel>& model, TreeShape shape,
                std::shared_ptr<DraftLane> lane)
      : HeadGrowth(std::move(shape), model->n_embd), forward_(model, std::move(lane)) {}

  std::string_view name() const override { return MedusaModel::kKind; }
  size_t bytes() const override { return forward_.bytes() + HeadGrowth::bytes(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    return KnowsStateOf(committed) ? static_cast<int>(forward_.model()->heads.size()) : 0;
  }

  DraftTask RunHead(int head, int k, std::vector<std::vector<TokenScore>>& next) override {
    const float* const of = state();
    MedusaRows rows(&forward_, {&of, 1}, head, k, &next);
    co_return co_await Meet(rows);
  }

  MedusaForward forward_;
};

DrafterResult MakeMedusa(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<MedusaModel>(options, context, "best", [&](auto model, TreeShape shape) {
    return std::make_unique<MedusaDrafter>(model, std::move(shape),
                                           LearnedLane<MedusaForward>(options, context, *model));
  });
}

}  // namespace

// The activations of a pass: what it keeps of the text is one state.
DraftMemory MedusaModel::Working(const SpeculationOptions&, const TargetFacts& target, int64_t) const {
  return {.fixed = DraftLane::Bytes(MedusaForward::Size(target.sizes.n_embd, target.sizes.n_vocab))};
}

constexpr DrafterEntry kMedusaDrafter =
    LearnedEntry<MedusaModel>({.summary = "the guesses of Medusa heads, from the model's last hidden state",
                               .reads_states = true,
                               .make = MakeMedusa});

}  // namespace longspec
