// SPDX-License-Identifier: Apache-2.0
//
// TokenSwift's heads (Wu et al. 2025, arXiv 2502.18890): each a residual layer on the state of the one
// before, the first on the output of the target's last layer, with the target's own head behind a norm. Head
// i predicts the token i + 2 places after its state's; all weigh the same, as in the released trainer. Tensor
// names are those of the released code. Norms begin as the target's last one and layers as no change at all,
// so each head begins with the target's own logits.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "network/model_tensors.h"
#include "train/feature_regression.h"
#include "train/layers.h"
#include "train/slots.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

constexpr int kTokenswiftHeads = 3;

class TokenswiftTrainee : public Trainee {
 public:
  explicit TokenswiftTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
    const int64_t width = setup_.target.n_embd;
    for (int i = 0; i < setup_.options.n_heads; ++i) {
      parameters_.Matrix(Name(i) + "linear", width, width, true, 0.0);
      parameters_.Vector(Name(i) + "input_layernorm.weight", width, 1.0);
      parameters_.Vector(Name(i) + "post_layernorm.weight", width, 1.0);
    }
  }

  // The state of head i at a row is made of that of its first state's row, i + 1 rows before: that of a
  // slot's chain i steps on.
  PassLoss Loss(const PlacedBatch& batch, const PassDraw&) const override {
    PassLoss loss;
    const at::Tensor head = batch.loss_head.weight;
    const Targets targets = batch.targets.WithLogits(head);
    ForEachHead(batch, setup_.options.n_heads, [&](int i, const at::Tensor& states, const at::Tensor& rows) {
      const LabelledStates labelled = SelectLabelled(batch, states, rows);
      if (labelled.n() == 0) return;
      const at::Tensor sum = EntropyLoss(labelled, targets, head);
      loss.sum = loss.sum.defined() ? loss.sum + sum : sum;
      loss.head_rows += static_cast<double>(labelled.n());
      if (i == 0) loss.rows = labelled.n();
    });
    loss.forward_macs = static_cast<double>(batch.n()) * parameters_.TrainedMatrixElements();
    return loss;
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    std::vector<at::Tensor> all(static_cast<size_t>(n_lags), at::zeros_like(batch.embedded));
    ForEachHead(batch, std::min(n_lags, setup_.options.n_heads),
                [&](int i, const at::Tensor& states, const at::Tensor& rows) {
                  at::Tensor& of_lag = all[static_cast<size_t>(i)];
                  of_lag = of_lag.index_copy(0, rows, states);
                });
    return all;
  }

  std::string Describe() const override { return "--heads " + std::to_string(setup_.options.n_heads); }

  bool BeginsWithTarget() const override { return true; }
  Status InitFromTarget() override {
    LS_ASSIGN(const at::Tensor norm,
              LoadRows(*setup_.model, TensorName(TensorRole::kOutputNorm), 1, setup_.target.n_embd));
    const at::NoGradGuard no_grad;
    for (int i = 0; i < setup_.options.n_heads; ++i) {
      for (const char* name : {"input_layernorm.weight", "post_layernorm.weight"}) {
        at::Tensor to = parameters_.Find(Name(i) + name);
        to.copy_(norm.view_as(to));
      }
    }
    return {};
  }

  void AddConfig(nlohmann::json* config) const override {
    (*config)["medusa_heads"] = setup_.options.n_heads;
  }

 private:
  static std::string Name(int head) { return "medusa_layers." + std::to_string(head) + "."; }

  at::Tensor Norm(const at::Tensor& x, const std::string& name) const {
    return RmsNorm(x, parameters_.Find(name), setup_.target.rms_eps);
  }

  // visit(head, states (m, n_embd) behind its norm, rows (m) whose next token each predicts).
  template <typename Visit>
  void ForEachHead(const PlacedBatch& batch, int n_heads, const Visit& visit) const {
    at::Tensor h = batch.hidden.at(setup_.n_layer - 1);  // of every row
    for (int i = 0; i < n_heads; ++i) {
      h = h + parameters_.Product(Name(i) + "linear", Norm(h, Name(i) + "input_layernorm.weight"));
      const at::Tensor rows = Ahead(batch.ends, i).rows.to(h.device());
      visit(i, Norm(h.index_select(0, rows - (i + 1)), Name(i) + "post_layernorm.weight"), rows);
    }
  }
};

}  // namespace

const TraineeKind& TokenswiftKind() {
  static const TraineeKind kind = {
      .name = "tokenswift",
      .what = "TokenSwift: heads on the target's last layer, each on the state of the one before",
      .reads = {"--heads"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int n_layer) -> Status {
        if (o->n_heads < 0) o->n_heads = kTokenswiftHeads;
        o->layers = {n_layer - 1};
        if (o->n_heads < 1) return InvalidArgument("--heads: must be at least 1");
        return {};
      },
      .needs = [](const TraineeOptions& o) { return ShardNeeds{.layers = o.layers}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<TokenswiftTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
