// SPDX-License-Identifier: Apache-2.0
#include "train/longspec.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "network/model_tensors.h"
#include "train/fused_loss.h"
#include "train/layers.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

// Of the output matrices that a draft takes over. In the target more layers and a norm follow; here the LM
// head does, and at their own size the first logits would be far too large.
constexpr double kLongspecOutputScale = 0.02;

}  // namespace

LongspecTrainee::LongspecTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
  const FeatureTarget& t = setup_.target;
  AddAttention(&parameters_, t, "self_attn", {.n_in = t.n_embd, .bias = true});
  AddAttention(&parameters_, t, "cross_attn",
               {.n_in = t.n_embd, .bias = true, .trained_keys = setup_.options.own_keys});
  AddMlp(&parameters_, t, "mlp", n_ff());
  for (const std::string norm : {"input", "post_self_attention", "post_cross_attention"}) {
    parameters_.Vector(norm + "_layernorm.weight", t.n_embd, 1.0);
  }
}

at::Tensor LongspecTrainee::CrossAttention(const at::Tensor& x, const Rotation& rotation,
                                           const PlacedBatch& batch, int lag) const {
  const FeatureTarget& t = setup_.target;
  const at::Tensor q = Rotate(ProjectHeads(parameters_, "cross_attn.q_proj", x, t), rotation);
  const Precision precision = parameters_.precision();
  if (!setup_.options.own_keys)
    return LaggedAttention({q, batch.keys, batch.values}, batch.ends, precision, lag);
  const at::Tensor k =
      Rotate(ProjectHeads(parameters_, "cross_attn.k_proj", batch.final_hidden, t), rotation);
  const at::Tensor v = ProjectHeads(parameters_, "cross_attn.v_proj", batch.final_hidden, t);
  return LaggedAttention({q, k, v}, batch.ends, precision, lag);
}

at::Tensor LongspecTrainee::Forward(const PlacedBatch& batch, int lag) const {
  const FeatureTarget& t = setup_.target;
  const Rotation rotation = MakeRotation(t, batch.positions, t.rope_magnitude);
  const auto norm = [&](const at::Tensor& y, const std::string& name) {
    return RmsNorm(y, parameters_.Find(name + "_layernorm.weight"), t.rms_eps);
  };
  at::Tensor x = batch.embedded;
  const at::Tensor input = norm(x, "input");
  const at::Tensor q = Rotate(ProjectHeads(parameters_, "self_attn.q_proj", input, t), rotation);
  const at::Tensor k = Rotate(ProjectHeads(parameters_, "self_attn.k_proj", input, t), rotation);
  const at::Tensor v = ProjectHeads(parameters_, "self_attn.v_proj", input, t);
  x = x + parameters_.Product(
              "self_attn.o_proj",
              CausalAttention({q, k, v}, batch.ends, parameters_.precision(), setup_.options.window));
  x = x + parameters_.Product("cross_attn.o_proj",
                              CrossAttention(norm(x, "post_self_attention"), rotation, batch, lag));
  return x + Mlp(parameters_, "mlp", norm(x, "post_cross_attention"));
}

PassLoss LongspecTrainee::Loss(const PlacedBatch& batch, const PassDraw& draw) const {
  PassLoss loss = {.rows = batch.rows.numel()};
  if (loss.rows == 0) return loss;  // none of the labels is of the reduced vocabulary
  const at::Tensor hidden = Forward(batch, draw.lag).index_select(0, batch.rows);
  loss.sum = FusedCrossEntropy(hidden, batch.loss_head.weight, batch.targets) * loss.rows;
  loss.forward_macs = ForwardMacs(batch.ends);
  loss.head_rows = static_cast<double>(loss.rows);
  return loss;
}

std::vector<at::Tensor> LongspecTrainee::Chain(const PlacedBatch& batch, int n_lags) const {
  std::vector<at::Tensor> states;
  for (int lag = 1; lag <= n_lags; ++lag) states.push_back(Forward(batch, lag));
  return states;
}

std::string LongspecTrainee::Describe() const {
  return "--noise-max " + std::to_string(setup_.options.most_lag) + " --window " +
         std::to_string(setup_.options.window) + (setup_.options.own_keys ? " --own-keys" : "");
}

Status LongspecTrainee::InitFromTarget() {
  const int first = 0, last = setup_.n_layer - 1;
  std::vector<TakenOver> parts = AttentionOf(parameters_, "self_attn", first, kLongspecOutputScale);
  for (const TakenOver& part : MlpOf("mlp", first, kLongspecOutputScale)) parts.push_back(part);
  for (const TakenOver& part : AttentionOf(parameters_, "cross_attn", last, kLongspecOutputScale)) {
    // Its own keys and values read another state than the target's do.
    if (!part.to.starts_with("cross_attn.k_proj") && !part.to.starts_with("cross_attn.v_proj"))
      parts.push_back(part);
  }
  parts.push_back({"input_layernorm.weight", TensorName(TensorRole::kAttentionNorm, first)});
  parts.push_back({"post_self_attention_layernorm.weight", TensorName(TensorRole::kAttentionNorm, last)});
  parts.push_back({"post_cross_attention_layernorm.weight", TensorName(TensorRole::kMlpNorm, first)});
  return TakeOver(*setup_.model, setup_.target, parts, parameters_);
}

void LongspecTrainee::AddConfig(nlohmann::json* config) const {
  (*config)["longspec_window"] = setup_.options.window;
  if (setup_.options.own_keys) (*config)["longspec_own_keys"] = true;
}

double LongspecTrainee::ForwardMacs(const Ends& ends) const {
  double seen = 0.0, begin = 0.0;
  for (const int64_t end : ends) {
    const double n = static_cast<double>(end) - begin;
    const double windowed = std::min<double>(n, setup_.options.window + 1);
    seen += n * (n + 1) / 2 + windowed * (n - windowed / 2);  // cross and self, of all queries
    begin = static_cast<double>(end);
  }
  return begin * parameters_.TrainedMatrixElements() + AttentionMacs(setup_.target, seen);
}

const TraineeKind& LongspecKind() {
  static const TraineeKind kind = {
      .name = "longspec",
      .what = "LongSpec: attends to the target's last-layer keys and values; constant memory",
      .reads = {"--ff", "--window", "--noise-max", "--own-keys"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int) -> Status {
        if (o->most_lag < 1) return InvalidArgument("--noise-max: must be at least 1");
        if (o->window < 1) return InvalidArgument("--window: must be at least 1");
        return {};
      },
      .needs =
          [](const TraineeOptions& o) {
            return ShardNeeds{.keys_values = !o.own_keys, .final_hidden = o.own_keys};
          },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<LongspecTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
