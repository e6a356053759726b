// SPDX-License-Identifier: Apache-2.0
//
// Medusa heads (Cai et al. 2024): head i, a residual layer before the target's own head, reads the target's
// final hidden state and predicts the token i + 2 places after its own. Each layer begins as no change at
// all.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "train/feature_regression.h"
#include "train/slots.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

constexpr int kMedusaHeads = 4;
constexpr double kHeadWeight = 0.8;  // of each head beside the one before

class MedusaTrainee : public Trainee {
 public:
  explicit MedusaTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
    const int64_t width = setup_.target.n_embd;
    for (int i = 0; i < setup_.options.n_heads; ++i) {
      parameters_.Matrix(Name(i), width, width, true, 0.0);
      parameters_.Vector(Name(i) + ".bias", width, 0.0);
    }
  }

  // What head i drafts after a row's token comes from the state i + 1 rows before: that of a slot's chain i
  // steps on.
  PassLoss Loss(const PlacedBatch& batch, const PassDraw&) const override {
    PassLoss loss;
    const Targets targets = batch.targets.WithLogits(batch.loss_head.weight);
    for (int i = 0; i < setup_.options.n_heads; ++i) {
      const SlotsAhead ahead = Ahead(batch.ends, i);
      const at::Tensor rows = ahead.rows.to(batch.embedded.device());
      const LabelledStates labelled = SelectLabelled(batch, States(batch, i, rows), rows);
      if (labelled.n() == 0) continue;
      const at::Tensor sum =
          EntropyLoss(labelled, targets, batch.loss_head.weight) * std::pow(kHeadWeight, i);
      loss.sum = loss.sum.defined() ? loss.sum + sum : sum;
      loss.head_rows += static_cast<double>(labelled.n());
      if (i == 0) loss.rows = labelled.n();
    }
    loss.forward_macs = static_cast<double>(batch.n()) * parameters_.TrainedMatrixElements();
    return loss;
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    std::vector<at::Tensor> states;
    for (int i = 0; i < n_lags; ++i) {
      at::Tensor state = at::zeros_like(batch.embedded);
      if (i < setup_.options.n_heads) {
        const at::Tensor rows = Ahead(batch.ends, i).rows.to(state.device());
        state = state.index_copy(0, rows, States(batch, i, rows));
      }
      states.push_back(state);
    }
    return states;
  }

  std::string Describe() const override { return "--heads " + std::to_string(setup_.options.n_heads); }

  void AddConfig(nlohmann::json* config) const override {
    (*config)["medusa_num_heads"] = setup_.options.n_heads;
    (*config)["medusa_num_layers"] = 1;
  }

 private:
  static std::string Name(int head) { return "medusa_head." + std::to_string(head) + ".0.linear"; }

  at::Tensor States(const PlacedBatch& batch, int head, const at::Tensor& rows) const {
    const at::Tensor h = batch.final_hidden.index_select(0, rows - (head + 1));
    return h + at::silu(parameters_.Product(Name(head), h));
  }
};

}  // namespace

const TraineeKind& MedusaKind() {
  static const TraineeKind kind = {
      .name = "medusa",
      .what = "Medusa: heads that read the target's final hidden state, one for each place ahead",
      .reads = {"--heads"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int) -> Status {
        if (o->n_heads < 0) o->n_heads = kMedusaHeads;
        if (o->n_heads < 1) return InvalidArgument("--heads: must be at least 1");
        return {};
      },
      .needs = [](const TraineeOptions&) { return ShardNeeds{.final_hidden = true}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<MedusaTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
