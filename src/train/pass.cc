// SPDX-License-Identifier: Apache-2.0
#include "train/pass.h"

#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "train/fused_loss.h"

namespace longspec::train {

DraftNet::Input PlaceBatch(const Batch& batch, const at::Tensor& embedding, const FeatureTarget& target,
                           const PassDraw& draw) {
  const at::Device device = embedding.device();
  const int64_t length = batch.tokens.size(1);
  std::vector<int64_t> positions, moves;
  for (int64_t i = 0; i < length; ++i) {
    positions.push_back(PositionOf(draw.positions, i));
    moves.push_back(positions.back() - i);
  }
  DraftNet::Input input = {
      .embedded =
          embedding.index_select(0, batch.tokens.flatten().to(device)).view({-1, length, embedding.size(1)}),
      .positions = at::tensor(positions, at::kLong).to(device),
      .keys = batch.keys.to(device),
      .values = batch.values.to(device),
      .lag = draw.lag};
  if (draw.positions.offset == 0) return input;
  input.keys = Rotate(input.keys, MakeRotation(target, at::tensor(moves, at::kLong).to(device), 1.0));
  return input;
}

PassSum RunPass(const DraftNet& net, std::span<const at::Tensor> parameters, const FrozenParts& frozen,
                const Batch& batch, const PassDraw& draw) {
  const at::Device device = frozen.embedding.device();
  PassSum sum;
  sum.tokens = batch.n_tokens;
  sum.padded = batch.tokens.numel();
  sum.rows = batch.rows.numel();
  if (sum.rows == 0) return sum;  // none of the labels is of the reduced vocabulary
  const DraftNet::Input input = PlaceBatch(batch, frozen.embedding, net.shape().target, draw);
  const at::Tensor hidden = net.Forward(input).flatten(0, 1).index_select(0, batch.rows.to(device));
  const SparseTargets targets = {batch.targets.ids.to(device), batch.targets.weights.to(device)};
  const at::Tensor loss = FusedCrossEntropy(hidden, frozen.head, targets) * sum.rows;
  sum.loss = loss.item<double>();
  const std::vector<at::Tensor> by(parameters.begin(), parameters.end());
  sum.gradients = torch::autograd::grad({loss}, by, {}, std::nullopt, /*create_graph=*/false,
                                        /*allow_unused=*/true);
  // Backwards twice as much as forwards, but for the head, which has no gradient.
  sum.macs = 3.0 * static_cast<double>(batch.tokens.size(0)) * net.ForwardMacs(batch.tokens.size(1)) +
             2.0 * static_cast<double>(hidden.numel()) * static_cast<double>(frozen.head.size(0));
  return sum;
}

}  // namespace longspec::train
