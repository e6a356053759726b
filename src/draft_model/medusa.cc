// SPDX-License-Identifier: Apache-2.0
//
// Medusa (arXiv 2401.10774): heads that predict the tokens further on from the target's final hidden state at
// the last computed position (draft/tree_growth.h). A tree is the best products of their probabilities, or
// the paper's fixed one (--spec-tree medusa). Verification is that of all drafters, and exact: the paper's
// typical acceptance, which is not, is left out.
#include "draft_model/medusa.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_pass.h"
#include "draft_model/last_state_drafter.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"

namespace longspec {
namespace {

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

}  // namespace

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
                     .matrix = &of.own,
                     .required = false});
  }
  return parts;
}

void MedusaModel::Finish(const SharedParts&) {
  for (Head& of : heads) of.own_head.matrix = of.own.matrix();
}

namespace {

// A row of a head's pass is its state and one product as wide.
BlockShape ShapeOf(int n_embd) { return {.n_embd = n_embd, .n_ff = n_embd}; }

InputForms FormsOf(const MedusaModel& model) {
  InputForms forms;
  for (const MedusaModel::Head& head : model.heads) {
    forms.Add(head.linear.matrix());
    forms.Add(model.OutputOf(head).matrix);
  }
  return forms;
}

int64_t MostLogits(const MedusaModel& model) {
  int64_t most = 0;
  for (const MedusaModel::Head& head : model.heads) most = std::max(most, model.OutputOf(head).matrix.n_out);
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

  using Scratch = DraftScratch;
  static std::shared_ptr<Scratch> MakeScratch(const MedusaModel& model, const SharedParts& target) {
    return std::make_shared<Scratch>(target, ShapeOf(model.n_embd), FormsOf(model), kMaxRows,
                                     MostLogits(model));
  }

  MedusaForward(std::shared_ptr<const MedusaModel> model, const SharedParts& target,
                std::shared_ptr<Scratch> scratch)
      : model_(std::move(model)), target_(target), scratch_(std::move(scratch)) {}

  const MedusaModel* model() const { return model_.get(); }
  size_t bytes() const { return scratch_->bytes(); }
  static size_t ScratchBytes(int n_embd, int64_t n_logits) {
    return Z(kMaxRows) * (Workspace::RowBytes(ShapeOf(n_embd), kAllInputForms) + Z(n_logits) * sizeof(float));
  }

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
    float *gate = work_.gate.as<float>(), *ones = work_.up.as<float>(), *x = work_.x.as<float>(),
          *activated = work_.activated.as<float>();
    std::fill_n(ones, width, 1.0F);
    for (size_t r = 0; r < states_.size(); ++r) {
      std::memcpy(gate + r * width, head.bias.data(), width * sizeof(float));
      std::memcpy(x + r * width, states_[r], width * sizeof(float));
    }
    next_.resize(states_.size());
    target_.lane.team->Run([&](ThreadTeam::Worker& worker) {
      Convert(worker, work_, x, n, n_rows);
      worker.Barrier();
      const std::array linear = {LinearJob{&head.linear.matrix(), gate, true}};
      Project(worker, work_, linear, x, n, n_rows);
      worker.Barrier();
      const auto share = worker.ShareOf(n_rows);
      for (int r = share.begin; r < share.end; ++r) {
        float *row = x + Z(r) * width, *added = activated + Z(r) * width;
        target_.lane.kernels->swiglu(gate + Z(r) * width, ones, n, added);
        for (size_t d = 0; d < width; ++d) row[d] += added[d];
      }
      worker.Barrier();
      Convert(worker, work_, x, n, n_rows);
      worker.Barrier();
      TopOfHead(worker, work_, model_->OutputOf(head), x, n_rows, scratch_->logits.as<float>(), k, next_);
    });
    HandOut(pieces, std::span(next_));
    return {};
  }

  const std::shared_ptr<const MedusaModel> model_;
  const SharedParts target_;
  const std::shared_ptr<Scratch> scratch_;
  Workspace& work_ = scratch_->work;
  std::vector<const float*> states_;  // of one pass, as is what follows
  std::vector<std::vector<TokenScore>> next_;
};

MeetingRows::Key MedusaRows::key() const { return {.model = forward->model(), .form = head}; }

class MedusaDrafter final : public HeadGrowth<LastStateDrafter> {
 public:
  MedusaDrafter(const std::shared_ptr<const MedusaModel>& model, TreeShape shape, const SharedParts& target,
                std::shared_ptr<MedusaForward::Scratch> scratch)
      : HeadGrowth(std::move(shape), model->n_embd), forward_(model, target, std::move(scratch)) {}

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
    return std::make_unique<MedusaDrafter>(model, std::move(shape), *context.target->shared_parts(),
                                           LearnedScratch<MedusaForward>(options, context, *model));
  });
}

}  // namespace

// The activations of a pass: what it keeps of the text is one state.
DraftMemory MedusaModel::Working(const SpeculationOptions&, const TargetFacts& target, int64_t) const {
  return {.fixed = MedusaForward::ScratchBytes(target.sizes.n_embd, target.sizes.n_vocab)};
}

constexpr DrafterEntry kMedusaDrafter =
    LearnedEntry<MedusaModel>({.summary = "the guesses of Medusa heads, from the model's last hidden state",
                               .reads_states = true,
                               .make = MakeMedusa});

}  // namespace longspec
