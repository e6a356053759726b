// SPDX-License-Identifier: Apache-2.0
//
// EAGLE-1 and 2 (Li et al. 2024): one block that reads the embedding of a token and the target's final hidden
// state of the token before it, and learns that state of its own token as well as what follows. Without an
// input norm and a final norm. Tensor names are those of the published checkpoints.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "network/model_tensors.h"
#include "train/feature_chain.h"
#include "train/feature_regression.h"
#include "train/fused_loss.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

constexpr char kEaglePrefix[] = "layers.0.";

class EagleTrainee : public Trainee {
 public:
  explicit EagleTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
    const FeatureTarget& t = setup_.target;
    const std::string prefix = kEaglePrefix;
    parameters_.Matrix("fc", t.n_embd, 2 * int64_t{t.n_embd});
    parameters_.Vector("fc.bias", t.n_embd, 0.0);
    AddAttention(&parameters_, t, prefix + "self_attn", {.n_in = t.n_embd});
    AddMlp(&parameters_, t, prefix + "mlp", n_ff());
    parameters_.Vector(prefix + "post_attention_layernorm.weight", t.n_embd, 1.0);
  }

  PassLoss Loss(const PlacedBatch& batch, const PassDraw& draw) const override {
    PassLoss loss = ChainLoss(Run(batch, AddNoise(batch.final_hidden, batch.ends, setup_.options, draw.seed),
                                  setup_.options.simulate),
                              batch, [&](const LabelledStates& labelled, const Targets& targets) {
                                return EntropyLoss(labelled, targets, batch.loss_head.weight) +
                                       setup_.options.regression * RegressionLoss(labelled, batch);
                              });
    loss.forward_macs = ChainMacs(parameters_, setup_.target, batch.ends, setup_.options.simulate);
    return loss;
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    std::vector<at::Tensor> states = Run(batch, batch.final_hidden, n_lags);
    for (size_t i = 0; i < states.size(); ++i) states[i] = ByRow(batch, states[i], static_cast<int64_t>(i));
    return states;
  }

  std::string Describe() const override {
    return DescribeRegression(setup_.options) + " --simulate " + std::to_string(setup_.options.simulate);
  }

  // Begins with the embedding alone and the target's first layer, outputs made small: near the even guess
  // that other kinds begin with. (To begin with the feature is to be certain of the token that is known
  // already, which takes hundreds of thousands of tokens to unlearn.)
  Status InitFromTarget() override {
    constexpr int kFirst = 0;
    const std::string prefix = kEaglePrefix;
    constexpr double kOutputScale = 0.02;
    std::vector<TakenOver> parts = AttentionOf(parameters_, prefix + "self_attn", kFirst, kOutputScale);
    for (const TakenOver& part : MlpOf(prefix + "mlp", kFirst, kOutputScale)) parts.push_back(part);
    parts.push_back({prefix + "post_attention_layernorm.weight", TensorName(TensorRole::kMlpNorm, kFirst)});
    LS_TRY(TakeOver(*setup_.model, setup_.target, parts, parameters_));
    const at::NoGradGuard no_grad;
    const at::Tensor& fc = parameters_.Find("fc.weight");
    fc.zero_();
    fc.slice(1, 0, setup_.target.n_embd).add_(at::eye(setup_.target.n_embd, fc.options()));
    return {};
  }

  void AddConfig(nlohmann::json* config) const override {
    (*config)["bias"] = true;
    (*config)["qkv_bias"] = false;
  }

 private:
  // `states` (n, n_embd), by row, are what the slots read.
  std::vector<at::Tensor> Run(const PlacedBatch& batch, const at::Tensor& states, int steps) const {
    const FeatureBlock block = {
        .prefix = kEaglePrefix,
        .enter = [&](const at::Tensor& embedded, const at::Tensor& feature, int) -> BlockInput {
          const at::Tensor x = parameters_.Product("fc", at::cat({embedded, feature}, 1));
          return {x, x};
        }};
    const at::Tensor before = MakeSlots(batch.ends).rows.to(states.device()) - 1;
    return RunChains(block, parameters_, setup_.target, batch, batch.embedded, states.index_select(0, before),
                     steps);
  }
};

}  // namespace

const TraineeKind& EagleKind() {
  static const TraineeKind kind = {
      .name = "eagle",
      .what = "EAGLE-1 and 2: reads the target's final hidden state, drafts the next one",
      .reads = {"--ff", "--simulate", "--regression", "--noise", "--noise-scale"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int) -> Status {
        if (o->simulate < 0) o->simulate = 1;
        if (o->simulate < 1) return InvalidArgument("--simulate: must be at least 1 for this kind");
        return {};
      },
      .needs = [](const TraineeOptions&) { return ShardNeeds{.final_hidden = true}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<EagleTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
