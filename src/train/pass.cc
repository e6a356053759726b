// SPDX-License-Identifier: Apache-2.0
#include "train/pass.h"

#include <torch/csrc/autograd/autograd.h>

#include <utility>
#include <vector>

#include "train/layers.h"

namespace longspec::train {

PlacedBatch PlaceBatch(Batch batch, const FrozenHeads& frozen, const FeatureTarget& target,
                       const PositionDraw& draw) {
  const at::Device device = frozen.embedding.device();
  std::vector<int64_t> positions, moves;
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    for (int64_t i = 0; i < end - begin; ++i) {
      positions.push_back(PositionOf(draw, i));
      moves.push_back(positions.back() - i);
    }
    begin = end;
  }
  PlacedBatch placed = {std::move(batch), {}, at::tensor(positions, at::kLong).to(device)};
  for (at::Tensor* tensor :
       {&placed.tokens, &placed.keys, &placed.values, &placed.final_hidden, &placed.rows, &placed.labels}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  for (auto& [layer, tensor] : placed.hidden) tensor = tensor.to(device);
  placed.targets = placed.targets.To(device);
  placed.loss_head.weight = frozen.loss_head;
  placed.embedded = frozen.embedding.index_select(0, placed.tokens);
  if (placed.keys.defined() && draw.moves()) {
    const Rotation rotation = MakeRotation(target, at::tensor(moves, at::kLong).to(device), 1.0);
    placed.keys = Rotate(placed.keys, rotation);
  }
  return placed;
}

PassSum RunPass(const Trainee& trainee, Batch batch, const PassDraw& draw) {
  const TraineeSetup& setup = trainee.setup();
  PassSum sum;
  sum.tokens = batch.n();
  PlacedBatch placed = PlaceBatch(std::move(batch), setup.frozen, setup.target, draw.positions);
  placed.loss_head = DrawLossHead(placed.loss_head.weight, draw.tokens_of_loss, draw.seed, &placed.targets);
  const PassLoss loss = trainee.Loss(placed, draw);
  sum.rows = loss.rows;
  if (!loss.sum.defined()) return sum;
  sum.loss = loss.sum.item<double>();
  sum.gradients = torch::autograd::grad({loss.sum}, trainee.parameters().Trained(), {}, std::nullopt,
                                        /*create_graph=*/false, /*allow_unused=*/true);
  // Backwards twice as much as forwards, but for the head, which has no gradient.
  sum.macs =
      3.0 * loss.forward_macs + 2.0 * loss.head_rows * static_cast<double>(placed.loss_head.weight.numel());
  return sum;
}

}  // namespace longspec::train
