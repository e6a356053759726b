// SPDX-License-Identifier: Apache-2.0
#include "draft_model/beagle_model.h"

#include <new>

#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr char kBeagleLayer[] = "layer";
constexpr char kStateNorm[] = "layer.kv_layernorm.weight";

std::vector<DraftPart> PartsOf(const BlockShape& shape, BeagleModel* m) {
  std::vector<DraftPart> parts = m->layer.Parts(shape, kBeagleLayer, "cross_attn");
  parts.push_back({kStateNorm, shape.n_embd, 1, nullptr, &m->state_norm});
  return parts;
}

// "kv_norm" and its tensor come together.
Status CheckStateNorm(const DraftCheckpoint& checkpoint) {
  const bool has_tensor = checkpoint.Find(kStateNorm) != nullptr;
  LS_ASSIGN(const bool says, checkpoint.keys.Flag("kv_norm", has_tensor));
  if (says == has_tensor) return {};
  return Corrupt(checkpoint.path + ": \"kv_norm\" is " +
                 (says ? "true, but there is no" : "false, but there is a") + " tensor " + kStateNorm);
}

}  // namespace

Status BeagleModel::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_TRY(checkpoint.keys.Flag("concat", true).status());
  LS_TRY(CheckStateNorm(checkpoint));
  LS_ASSIGN(const DraftBlock block, ReadDraftLayerBlock(checkpoint, target, kBeagleLayer));
  BeagleModel unused;
  return CheckDraftShapes(checkpoint, PartsOf(block.shape, &unused));
}

uint64_t BeagleModel::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights, const LlamaConfig&,
                            const TensorView& target_head) {
  BeagleModel unused;
  return DraftMatrixBytes(checkpoint, PartsOf({}, &unused), weights) +
         DraftHeadBytes(checkpoint, weights, target_head);
}

Result<std::shared_ptr<const BeagleModel>> BeagleModel::Load(const DraftCheckpoint& checkpoint,
                                                             const std::string& weights,
                                                             const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  auto model = std::make_shared<BeagleModel>();
  model->path = checkpoint.path;
  model->trained_positions = checkpoint.config.trained_positions;
  LS_ASSIGN(model->concat, checkpoint.keys.Flag("concat", true));
  LS_ASSIGN(model->layer.block, ReadDraftLayerBlock(checkpoint, *target.config, kBeagleLayer));
  LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->head));
  LS_TRY(LoadDraftParts(checkpoint, PartsOf(model->layer.block.shape, model.get()), weights, target,
                        &model->memory));
  return std::shared_ptr<const BeagleModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
}

}  // namespace longspec
