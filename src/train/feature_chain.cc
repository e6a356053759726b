// SPDX-License-Identifier: Apache-2.0
#include "train/feature_chain.h"

#include <algorithm>

namespace longspec::train {

std::vector<at::Tensor> RunChains(const FeatureBlock& block, const Parameters& parameters,
                                  const FeatureTarget& target, const PlacedBatch& batch,
                                  const at::Tensor& tokens, const at::Tensor& features, int steps) {
  const at::Device device = batch.embedded.device();
  const Slots slots = MakeSlots(batch.ends);
  // Of the first step's slots each sees those up to its own.
  const Visibility sees = {.query_ends = slots.ends, .key_ends = slots.ends, .seen = slots.seen};
  const std::string attention = block.prefix + "self_attn";
  at::Tensor feature = features, first_keys, first_values;
  std::vector<OwnStep> own;
  std::vector<at::Tensor> outputs;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor rows = RowsAhead(batch.ends, step, device);
    const auto [residual, attended] = block.enter(tokens.index_select(0, rows), feature, step);
    const Rotation rotation =
        MakeRotation(target, batch.positions.index_select(0, rows - 1), target.rope_magnitude);
    const at::Tensor q = Rotate(ProjectHeads(parameters, attention + ".q_proj", attended, target), rotation);
    const at::Tensor k = Rotate(ProjectHeads(parameters, attention + ".k_proj", attended, target), rotation);
    const at::Tensor v = ProjectHeads(parameters, attention + ".v_proj", attended, target);
    at::Tensor mixed;
    if (step == 0) {
      first_keys = k;
      first_values = v;
      mixed = CausalAttention({q, k, v}, slots.ends, parameters.precision());
    } else {
      own.push_back({k, v});
      mixed = SeenAttention({q, first_keys, first_values}, sees, own, parameters.precision());
    }
    const at::Tensor x = residual + parameters.Product(attention + ".o_proj", mixed);
    const at::Tensor normed =
        RmsNorm(x, parameters.Find(block.prefix + "post_attention_layernorm.weight"), target.rms_eps);
    feature = x + Mlp(parameters, block.prefix + "mlp", normed);
    outputs.push_back(feature);
  }
  return outputs;
}

PassLoss ChainLoss(const std::vector<at::Tensor>& outputs, const PlacedBatch& batch,
                   const std::function<at::Tensor(const LabelledStates&, const Targets&)>& sum_of) {
  PassLoss loss;
  const Targets targets =
      outputs.size() > 1 ? batch.targets.WithLogits(batch.loss_head.weight) : batch.targets;
  const at::Device device = batch.embedded.device();
  double weight = 1.0;
  for (size_t step = 0; step < outputs.size(); ++step, weight *= kStepWeight) {
    const SlotsAhead ahead = Ahead(batch.ends, static_cast<int64_t>(step));
    const LabelledStates labelled =
        SelectLabelled(batch, outputs[step].index_select(0, ahead.slots.to(device)), ahead.rows.to(device));
    if (labelled.n() == 0) continue;
    const at::Tensor sum = sum_of(labelled, targets);
    loss.sum = loss.sum.defined() ? loss.sum + sum * weight : sum;
    loss.head_rows += static_cast<double>(labelled.n());
    if (step == 0) loss.rows = labelled.n();
  }
  return loss;
}

double ChainMacs(const Parameters& parameters, const FeatureTarget& target, const Ends& ends, int steps) {
  double slots = 0.0, seen = 0.0, begin = 0.0;
  for (const int64_t end : ends) {
    const double n = std::max(0.0, static_cast<double>(end) - begin - 1.0);
    slots += n;
    seen += n * (n + steps) / 2;
    begin = static_cast<double>(end);
  }
  return steps * (slots * parameters.TrainedMatrixElements() + AttentionMacs(target, seen));
}

}  // namespace longspec::train
