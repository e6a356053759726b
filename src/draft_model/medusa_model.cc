// SPDX-License-Identifier: Apache-2.0
#include "draft_model/medusa_model.h"

#include <new>

#include "base/check.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

std::string MedusaPrefix(size_t head) { return "medusa_head." + std::to_string(head) + "."; }

size_t CountMedusaHeads(const DraftCheckpoint& checkpoint) {
  size_t n = 0;
  while (checkpoint.Find(MedusaPrefix(n) + "0.linear.weight") != nullptr) ++n;
  return n;
}

// `heads`: as many as the checkpoint has.
std::vector<DraftPart> PartsOf(const LlamaConfig& target, std::vector<MedusaModel::Head>* heads) {
  std::vector<DraftPart> parts;
  for (size_t i = 0; i < heads->size(); ++i) {
    MedusaModel::Head& head = (*heads)[i];
    parts.push_back({MedusaPrefix(i) + "0.linear.weight", target.n_embd, target.n_embd, &head.linear});
    parts.push_back({MedusaPrefix(i) + "0.linear.bias", target.n_embd, 1, nullptr, &head.bias});
    parts.push_back({MedusaPrefix(i) + "1.weight", target.n_embd, target.n_vocab, &head.own});
  }
  return parts;
}

}  // namespace

Status MedusaModel::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  LS_ASSIGN(const int layers, checkpoint.keys.Size("medusa_num_layers"));
  if (layers > 1) {
    return Unsupported(checkpoint.path + ": heads of " + std::to_string(layers) +
                       " layers (\"medusa_num_layers\"); one is supported");
  }
  const size_t n_heads = CountMedusaHeads(checkpoint);
  LS_ASSIGN(const int stated, checkpoint.keys.Size("medusa_num_heads"));
  if (stated > 0 && static_cast<size_t>(stated) > n_heads) {
    return Corrupt(checkpoint.path + ": \"medusa_num_heads\" is " + std::to_string(stated) +
                   ", but there are tensors of " + std::to_string(n_heads));
  }
  std::vector<Head> unused(n_heads);
  return CheckDraftShapes(checkpoint, PartsOf(target, &unused));
}

uint64_t MedusaModel::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                            const LlamaConfig& target, const TensorView& target_head) {
  std::vector<Head> unused(CountMedusaHeads(checkpoint));
  return DraftMatrixBytes(checkpoint, PartsOf(target, &unused), weights) +
         DraftHeadBytes(checkpoint, weights, target_head);
}

Result<std::shared_ptr<const MedusaModel>> MedusaModel::Load(const DraftCheckpoint& checkpoint,
                                                             const std::string& weights,
                                                             const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  auto model = std::make_shared<MedusaModel>();
  model->path = checkpoint.path;
  model->n_embd = target.config->n_embd;
  model->heads.resize(CountMedusaHeads(checkpoint));
  LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->target_head));
  LS_TRY(LoadDraftParts(checkpoint, PartsOf(*target.config, &model->heads), weights, target, &model->memory));
  for (Head& head : model->heads) head.own_head.matrix = head.own.matrix();
  return std::shared_ptr<const MedusaModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
}

}  // namespace longspec
