// SPDX-License-Identifier: Apache-2.0
#include "draft_model/exit_model.h"

#include <new>

#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr char kExitLayer[] = "layers.0";
constexpr char kFeature[] = "feature.weight";

std::vector<DraftPart> PartsOf(const BlockShape& shape, ExitModel* m) {
  std::vector<DraftPart> parts = m->layer.Parts(shape, kExitLayer, "self_attn");
  parts.push_back({kFeature, shape.n_embd, shape.n_embd, &m->feature});
  parts.push_back({"norm.weight", shape.n_embd, 1, nullptr, &m->output_norm});
  return parts;
}

}  // namespace

Result<int> ExitModel::ExitLayer(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_ASSIGN(const int layer, checkpoint.keys.Index("longspec_exit_layer", -1));
  if (layer < 0) {
    return Unsupported(checkpoint.path +
                       ": config.json does not say after which layer of the target the draft begins "
                       "(\"longspec_exit_layer\", 0-based)");
  }
  if (layer >= target.n_layer) {
    return DraftMisfit(checkpoint, "reads after layer", std::to_string(layer),
                       std::to_string(target.n_layer) + " layers");
  }
  return layer;
}

bool ExitModel::ReadsFeature(const DraftCheckpoint& checkpoint) {
  return checkpoint.Find(kFeature) != nullptr;
}

Status ExitModel::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_TRY(ExitLayer(checkpoint, target).status());
  LS_ASSIGN(const DraftBlock block, ReadDraftLayerBlock(checkpoint, target, kExitLayer));
  ExitModel unused;
  return CheckDraftShapes(checkpoint, PartsOf(block.shape, &unused));
}

uint64_t ExitModel::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights, const LlamaConfig&,
                          const TensorView& target_head) {
  ExitModel unused;
  return DraftMatrixBytes(checkpoint, PartsOf({}, &unused), weights) +
         DraftHeadBytes(checkpoint, weights, target_head);
}

Result<std::shared_ptr<const ExitModel>> ExitModel::Load(const DraftCheckpoint& checkpoint,
                                                         const std::string& weights,
                                                         const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  auto model = std::make_shared<ExitModel>();
  model->path = checkpoint.path;
  model->trained_positions = checkpoint.config.trained_positions;
  LS_ASSIGN(model->exit_layer, ExitLayer(checkpoint, *target.config));
  LS_ASSIGN(model->layer.block, ReadDraftLayerBlock(checkpoint, *target.config, kExitLayer));
  model->reads_feature = ReadsFeature(checkpoint);
  LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->head));
  LS_TRY(LoadDraftParts(checkpoint, PartsOf(model->layer.block.shape, model.get()), weights, target,
                        &model->memory));
  return std::shared_ptr<const ExitModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
}

}  // namespace longspec
