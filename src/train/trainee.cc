// SPDX-License-Identifier: Apache-2.0
#include "train/trainee.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "formats/draft_names.h"
#include "train/files.h"
#include "train/fused_loss.h"
#include "train/target_weights.h"

namespace longspec::train {

Trainee::Trainee(TraineeSetup setup)
    : setup_(std::move(setup)), parameters_(setup_.seed, setup_.device, setup_.options.precision) {}

at::Tensor Trainee::Head(int /*lag*/) const { return setup_.frozen.head; }

Status Trainee::InitFromTarget() {
  return Unsupported("--init-from-target: a draft of kind " + setup_.options.kind +
                     " has no part that its target has too");
}

Result<int64_t> Trainee::InitFromGguf(const GgufFile& file) {
  LS_ASSIGN(const std::string architecture, file.GetString("general.architecture"));
  if (architecture != setup_.options.kind) {
    return InvalidArgument(file.path() + ": has architecture \"" + architecture + "\", a draft of --kind " +
                           setup_.options.kind + " has \"" + setup_.options.kind + "\"");
  }
  std::vector<TakenOver> parts;
  for (const auto& [name, tensor] : parameters_.tensors()) parts.push_back({name, name});
  LS_TRY(TakeOver(file, setup_.target, parts, parameters_));
  LS_ASSIGN(const std::string config, file.GetStringOr(kDraftConfigKey, "{}"));
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Corrupt(file.path() + ": " + kDraftConfigKey + " is no JSON object");
  const auto positions = json.find(kTrainedPositionsKey);
  if (positions == json.end()) return int64_t{0};
  const bool counts = positions->is_number_unsigned() && *positions <= std::numeric_limits<int32_t>::max();
  if (counts) return positions->get<int64_t>();
  return Corrupt(file.path() + ": " + kTrainedPositionsKey + " in " + kDraftConfigKey + " is no count");
}

void Trainee::AddConfig(nlohmann::json* /*config*/) const {}

void Trainee::AddTensors(SafetensorsWriter* writer) const {
  if (!setup_.vocab.empty()) {
    writer->AddTensor(kDraftVocabTensor, DType::kI64, {static_cast<int64_t>(setup_.vocab.size())},
                      std::as_bytes(std::span(setup_.vocab)));
  }
  for (const auto& [name, tensor] : parameters_.tensors()) AddTensor(name, tensor, writer);
}

Status Trainee::ExportMore(const std::string& /*folder*/, int64_t /*trained_positions*/) const { return {}; }

PassLoss Trainee::CausalLoss(const PlacedBatch& batch, const at::Tensor& states, const at::Tensor& head,
                             const FeatureTarget& shape) const {
  PassLoss loss = {.rows = batch.rows.numel()};
  if (loss.rows == 0) return loss;
  loss.sum = FusedCrossEntropy(states.index_select(0, batch.rows), head, batch.targets, /*rows_at_once=*/0,
                               batch.loss_head.weight) *
             static_cast<double>(loss.rows);
  loss.forward_macs = CausalMacs(batch.ends, shape);
  loss.head_rows = static_cast<double>(loss.rows);
  return loss;
}

double Trainee::CausalMacs(const Ends& ends, const FeatureTarget& shape) const {
  double seen = 0.0, begin = 0.0;
  for (const int64_t end : ends) {
    const double n = static_cast<double>(end) - begin;
    seen += n * (n + 1) / 2;
    begin = static_cast<double>(end);
  }
  return begin * parameters_.TrainedMatrixElements() + AttentionMacs(shape, seen);
}

}  // namespace longspec::train
