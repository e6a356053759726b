// SPDX-License-Identifier: Apache-2.0
#include "train/trainee.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "train/files.h"
#include "train/fused_loss.h"

namespace longspec::train {

Trainee::Trainee(TraineeSetup setup)
    : setup_(std::move(setup)), parameters_(setup_.seed, setup_.device, setup_.options.precision) {}

at::Tensor Trainee::Head(int /*lag*/) const { return setup_.frozen.head; }

Status Trainee::InitFromTarget() {
  return Unsupported("--init-from-target: a draft of kind " + setup_.options.kind +
                     " has no part that its target has too");
}

void Trainee::AddConfig(nlohmann::json* /*config*/) const {}

void Trainee::AddTensors(SafetensorsWriter* writer) const {
  if (!setup_.vocab.empty()) {
    writer->AddTensor("draft.vocab", DType::kI64, {static_cast<int64_t>(setup_.vocab.size())},
                      std::as_bytes(std::span(setup_.vocab)));
  }
  for (const auto& [name, tensor] : parameters_.tensors()) AddTensor(name, tensor, writer);
}

Status Trainee::ExportMore(const std::string& /*folder*/, int64_t /*trained_positions*/) const { return {}; }

PassLoss Trainee::CausalLoss(const PlacedBatch& batch, const at::Tensor& states) const {
  PassLoss loss = {.rows = batch.rows.numel()};
  if (loss.rows == 0) return loss;
  loss.sum = FusedCrossEntropy(states.index_select(0, batch.rows), batch.loss_head.weight, batch.targets) *
             static_cast<double>(loss.rows);
  loss.forward_macs = CausalMacs(batch.ends);
  loss.head_rows = static_cast<double>(loss.rows);
  return loss;
}

double Trainee::CausalMacs(const Ends& ends) const {
  double seen = 0.0, begin = 0.0;
  for (const int64_t end : ends) {
    const double n = static_cast<double>(end) - begin;
    seen += n * (n + 1) / 2;
    begin = static_cast<double>(end);
  }
  return begin * parameters_.TrainedMatrixElements() + AttentionMacs(setup_.target, seen);
}

}  // namespace longspec::train
