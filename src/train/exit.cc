// SPDX-License-Identifier: Apache-2.0
//
// Early exit: a llama block with keys and values of its own that reads the target's residual stream after one
// of its first layers, and a norm before the target's head. The first layers are run for drafted tokens too,
// so the draft's input is the target's own state wherever it stands in a chain. It begins as the target's
// last layer.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

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
    const bool bias = setup_.model->FindTensor("blk.0.attn_q.bias") != nullptr;
    AddLlamaBlock(&parameters_, t, kExitPrefix, n_ff(), bias);
    parameters_.Vector("norm.weight", t.n_embd, 1.0);
  }

  PassLoss Loss(const PlacedBatch& batch, const PassDraw&) const override {
    return CausalLoss(batch, Forward(batch));
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    return std::vector<at::Tensor>(static_cast<size_t>(n_lags), Forward(batch));
  }

  std::string Describe() const override { return "--layers " + std::to_string(layer()); }

  bool BeginsWithTarget() const override { return true; }
  Status InitFromTarget() override {
    const std::string last = "blk." + std::to_string(setup_.n_layer - 1) + ".";
    std::vector<TakenOver> parts = BlockOf(parameters_, kExitPrefix, last);
    parts.push_back({"norm.weight", "output_norm.weight"});
    return TakeOver(*setup_.model, setup_.target, parts, parameters_);
  }

  void AddConfig(nlohmann::json* config) const override { (*config)["longspec_exit_layer"] = layer(); }

 private:
  int layer() const { return setup_.options.layers.front(); }

  at::Tensor Forward(const PlacedBatch& batch) const {
    const LlamaBlock block = {.parameters = parameters_, .target = setup_.target, .prefix = kExitPrefix};
    const Rotation rotation = MakeRotation(setup_.target, batch.positions, setup_.target.rope_magnitude);
    return RmsNorm(block.Forward(batch.hidden.at(layer()), rotation, batch.ends),
                   parameters_.Find("norm.weight"), setup_.target.rms_eps);
  }
};

}  // namespace

const TraineeKind& ExitKind() {
  static const TraineeKind kind = {
      .name = "exit",
      .what = "early exit: a block behind one of the target's first layers",
      .reads = {"--layers"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int n_layer) -> Status {
        if (o->layers.empty()) o->layers = {n_layer / 7};
        if (o->layers.size() == 1 && o->layers[0] >= 0 && o->layers[0] < n_layer) return {};
        return InvalidArgument("--layers: must be one layer of the target for this kind, 0 to " +
                               std::to_string(n_layer - 1));
      },
      .needs = [](const TraineeOptions& o) { return ShardNeeds{.layers = o.layers}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<ExitTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
