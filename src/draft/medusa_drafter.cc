// SPDX-License-Identifier: Apache-2.0
//
// Medusa (arXiv 2401.10774): heads that predict the tokens further on from the target's final hidden state at
// the last computed position (draft/head_growth.h). A tree is the best products of their probabilities, or
// the paper's fixed one (--spec-tree medusa). Verification is that of all drafters, and exact: the paper's
// typical acceptance, which is not, is left out.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/guided_growth.h"
#include "draft/head_growth.h"
#include "draft/head_pass.h"
#include "draft/learned_draft.h"
#include "draft/medusa_model.h"
#include "draft/registry.h"
#include "draft/tree_shape.h"

namespace longspec {
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

class MedusaDrafter final : public Drafter, private HeadGrowth {
 public:
  MedusaDrafter(std::shared_ptr<const MedusaModel> model, TreeShape shape, const SharedParts& target)
      : model_(std::move(model)),
        shape_(std::move(shape)),
        target_(target),
        state_(Z(model_->n_embd)),
        work_(ShapeOf(model_->n_embd), target.kernels, 1, FormsOf(*model_)),
        logits_(Z(MostLogits(*model_)) * sizeof(float)) {}

  std::string_view name() const override { return MedusaModel::kKind; }
  bool uses_dice() const override { return true; }
  Taps taps() const override { return {.final_hidden = true}; }

  Status Follow(std::span<const int32_t> committed) override {
    if (!std::ranges::equal(read_, committed.first(std::min(read_.size(), committed.size())))) read_.clear();
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    if (read_.size() + 1 != committed.size()) return {};  // the last state was not computed while it read
    GuidedGrowth guided(*this, budget, kDiceOfModels, committed);
    const auto n_heads = static_cast<int>(model_->heads.size());
    return GrowTreeNow(shape_,
                       {.max_nodes = budget.max_nodes, .max_depth = std::min(budget.max_depth, n_heads)},
                       guided, tree);
  }

  Status Read(const CommittedRows& rows) override {
    const size_t n_read = Z(rows.first) + rows.rows.size();
    if (rows.output == nullptr || rows.rows.empty()) return {};
    std::memcpy(state_.data(), rows.output->final_hidden + Z(rows.rows.back()) * state_.size(),
                state_.size() * sizeof(float));
    read_.resize(std::min(read_.size(), Z(rows.first)));
    const auto more = rows.sequence.first(n_read).subspan(read_.size());
    read_.insert(read_.end(), more.begin(), more.end());
    return {};
  }

  size_t bytes() const override {
    return work_.bytes() + logits_.size() + state_.capacity() * sizeof(float) +
           read_.capacity() * sizeof(int32_t);
  }

 private:
  void RunHead(int i, int k, std::span<std::vector<TokenScore>> next) override {
    const MedusaModel::Head& head = model_->heads[Z(i)];
    const int n = model_->n_embd;
    float *gate = work_.gate.as<float>(), *ones = work_.up.as<float>(), *x = work_.x.as<float>(),
          *activated = work_.activated.as<float>();
    std::fill_n(ones, n, 1.0F);
    std::memcpy(gate, head.bias.data(), Z(n) * sizeof(float));
    target_.team->Run([&](ThreadTeam::Worker& worker) {
      Convert(worker, work_, state_.data(), n, 1);
      worker.Barrier();
      const std::array linear = {LinearJob{&head.linear.matrix(), gate, true}};
      Project(worker, work_, linear, state_.data(), n, 1);
      worker.Barrier();
      if (worker.index() == 0) {
        target_.kernels->swiglu(gate, ones, n, activated);
        for (int d = 0; d < n; ++d) x[d] = state_[Z(d)] + activated[d];
      }
      worker.Barrier();
      Convert(worker, work_, x, n, 1);
      worker.Barrier();
      TopOfHead(worker, work_, model_->OutputOf(head), x, 1, logits_.as<float>(), k, next);
    });
  }

  const std::shared_ptr<const MedusaModel> model_;
  const TreeShape shape_;
  const SharedParts target_;
  std::vector<float> state_;   // (n_embd), at the last position of read_
  std::vector<int32_t> read_;  // committed tokens whose states were computed; the last one's is state_
  Workspace work_;
  AlignedBuffer logits_;
};

constexpr DrafterOption kMedusaOptions[] = {kDraftModelOption, kDraftWeightsOption};

DrafterResult MakeMedusa(const SpeculationOptions& options, const DraftContext& context) {
  return MakeLearned<MedusaModel>(options, context, "best", [&](auto model, TreeShape shape) {
    return std::make_unique<MedusaDrafter>(std::move(model), std::move(shape),
                                           *context.target->shared_parts());
  });
}

}  // namespace

constexpr DrafterEntry kMedusaDrafter = {
    .name = MedusaModel::kKind,
    .summary = "the guesses of Medusa heads, from the model's last hidden state",
    .options = kMedusaOptions,
    .reads = ReadsLearned<MedusaModel>,
    .check = CheckLearned,
    .fits = LearnedFits<MedusaModel>,
    // What it keeps of the text is one state.
    .memory = LearnedMemory<MedusaModel>,
    .make = MakeMedusa,
    .in_auto = Always,
    .as_member = GrowBestAsMember,
};

}  // namespace longspec
