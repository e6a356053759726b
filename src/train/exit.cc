// SPDX-License-Identifier: Apache-2.0
//
// Early exit: a llama block with keys and values of its own that reads the target's residual stream after one
// of its first layers, and a norm before the target's head. The first layers are run for drafted tokens too,
// so that input is the target's own state wherever it stands in a chain. With --simulate it also reads the
// target's final state of the token before, as EAGLE does, and its own in its place further on: what all
// layers made of the text so far, beside what the first ones make of the newest token. It begins as the
// target's last layer, and as if there were no final state.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "network/model_tensors.h"
#include "train/feature_chain.h"
#include "train/layers.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

constexpr char kExitPrefix[] = "layers.0.";

class ExitTrainee : public Trainee {
 public:
  explicit ExitTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
    const FeatureTarget& t = setup_.target;
    const bool bias = setup_.model->FindTensor(TensorName(TensorRole::kQueryBias, 0)) != nullptr;
    AddLlamaBlock(&parameters_, t, kExitPrefix, n_ff(), bias);
    parameters_.Vector("norm.weight", t.n_embd, 1.0);
    if (reads_feature()) parameters_.Matrix("feature", t.n_embd, t.n_embd);
  }

  PassLoss Loss(const PlacedBatch& batch, const PassDraw&) const override {
    if (!reads_feature()) return CausalLoss(batch, Forward(batch), batch.loss_head.weight, setup_.target);
    PassLoss loss = ChainLoss(Run(batch, setup_.options.simulate), batch,
                              [&](const LabelledStates& labelled, const Targets& targets) {
                                return EntropyLoss(labelled, targets, batch.loss_head.weight);
                              });
    loss.forward_macs = ChainMacs(parameters_, setup_.target, batch.ends, setup_.options.simulate);
    return loss;
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    if (!reads_feature()) return std::vector<at::Tensor>(static_cast<size_t>(n_lags), Forward(batch));
    std::vector<at::Tensor> states = Run(batch, n_lags);
    for (size_t i = 0; i < states.size(); ++i) states[i] = ByRow(batch, states[i], static_cast<int64_t>(i));
    return states;
  }

  std::string Describe() const override {
    const std::string layers = "--layers " + std::to_string(layer());
    return reads_feature() ? layers + " --simulate " + std::to_string(setup_.options.simulate) : layers;
  }

  bool BeginsWithTarget() const override { return true; }
  Status InitFromTarget() override {
    std::vector<TakenOver> parts = BlockOf(parameters_, kExitPrefix, setup_.n_layer - 1);
    parts.push_back({"norm.weight", TensorName(TensorRole::kOutputNorm)});
    LS_TRY(TakeOver(*setup_.model, setup_.target, parts, parameters_));
    const at::NoGradGuard no_grad;
    if (reads_feature()) parameters_.Find("feature.weight").zero_();
    return {};
  }

  void AddConfig(nlohmann::json* config) const override { (*config)["longspec_exit_layer"] = layer(); }

 private:
  bool reads_feature() const { return setup_.options.simulate > 0; }
  at::Tensor Normed(const at::Tensor& x, const std::string& name) const {
    return RmsNorm(x, parameters_.Find(name), setup_.target.rms_eps);
  }

  // What the head reads after each step; the next step reads it too.
  std::vector<at::Tensor> Run(const PlacedBatch& batch, int steps) const {
    const FeatureBlock block = {
        .prefix = kExitPrefix,
        .enter = [&](const at::Tensor& token, const at::Tensor& feature, int step) -> BlockInput {
          const at::Tensor before = step == 0 ? feature : Normed(feature, "norm.weight");
          const at::Tensor x = token + parameters_.Product("feature", before);
          return {x, Normed(x, "layers.0.input_layernorm.weight")};
        }};
    const at::Tensor before = MakeSlots(batch.ends).rows.to(batch.final_hidden.device()) - 1;
    std::vector<at::Tensor> outputs =
        RunChains(block, parameters_, setup_.target, batch, batch.hidden.at(layer()),
                  batch.final_hidden.index_select(0, before), steps);
    for (at::Tensor& output : outputs) output = Normed(output, "norm.weight");
    return outputs;
  }

  int layer() const { return setup_.options.layers.front(); }

  at::Tensor Forward(const PlacedBatch& batch) const {
    const LlamaBlock block = {.parameters = parameters_, .target = setup_.target, .prefix = kExitPrefix};
    const Rotation rotation = MakeRotation(setup_.target, batch.positions, setup_.target.rope_magnitude);
    return Normed(block.Forward(batch.hidden.at(layer()), rotation, batch.ends), "norm.weight");
  }
};

}  // namespace

const TraineeKind& ExitKind() {
  static const TraineeKind kind = {
      .name = "exit",
      .what = "early exit: a block behind one of the target's first layers",
      .reads = {"--layers", "--simulate"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int n_layer) -> Status {
        if (o->layers.empty()) o->layers = {n_layer / 7};
        o->simulate = std::max(o->simulate, 0);
        if (o->layers.size() == 1 && o->layers[0] >= 0 && o->layers[0] < n_layer) return {};
        return InvalidArgument("--layers: must be one layer of the target for this kind, 0 to " +
                               std::to_string(n_layer - 1));
      },
      .needs =
          [](const TraineeOptions& o) {
            return ShardNeeds{.final_hidden = o.simulate > 0, .layers = o.layers};
          },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<ExitTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
