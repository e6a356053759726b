// SPDX-License-Identifier: Apache-2.0
#include "draft_model/tokenswift_model.h"

#include <new>

#include "base/status_macros.h"

namespace longspec {
namespace {

std::string TokenswiftPrefix(size_t head) { return "medusa_layers." + std::to_string(head) + "."; }

size_t CountTokenswiftHeads(const DraftCheckpoint& checkpoint) {
  size_t n = 0;
  while (checkpoint.Find(TokenswiftPrefix(n) + "linear.weight") != nullptr) ++n;
  return n;
}

// `heads`: as many as the checkpoint has.
std::vector<DraftPart> PartsOf(const LlamaConfig& target, std::vector<TokenswiftModel::Head>* heads) {
  std::vector<DraftPart> parts;
  for (size_t i = 0; i < heads->size(); ++i) {
    TokenswiftModel::Head& head = (*heads)[i];
    parts.push_back({TokenswiftPrefix(i) + "linear.weight", target.n_embd, target.n_embd, &head.linear});
    parts.push_back(
        {TokenswiftPrefix(i) + "input_layernorm.weight", target.n_embd, 1, nullptr, &head.input_norm});
    parts.push_back(
        {TokenswiftPrefix(i) + "post_layernorm.weight", target.n_embd, 1, nullptr, &head.output_norm});
  }
  return parts;
}

}  // namespace

Status TokenswiftModel::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  const size_t n_heads = CountTokenswiftHeads(checkpoint);
  LS_ASSIGN(const int stated, checkpoint.keys.Size("medusa_heads"));
  if (stated > 0 && static_cast<size_t>(stated) > n_heads) {
    return Corrupt(checkpoint.path + ": \"medusa_heads\" is " + std::to_string(stated) +
                   ", but there are tensors of " + std::to_string(n_heads));
  }
  std::vector<Head> unused(n_heads);
  return CheckDraftShapes(checkpoint, PartsOf(target, &unused));
}

uint64_t TokenswiftModel::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                                const LlamaConfig& target, const TensorView& target_head) {
  std::vector<Head> unused(CountTokenswiftHeads(checkpoint));
  return DraftMatrixBytes(checkpoint, PartsOf(target, &unused), weights) +
         DraftHeadBytes(checkpoint, weights, target_head);
}

Result<std::shared_ptr<const TokenswiftModel>> TokenswiftModel::Load(const DraftCheckpoint& checkpoint,
                                                                     const std::string& weights,
                                                                     const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  auto model = std::make_shared<TokenswiftModel>();
  model->path = checkpoint.path;
  model->heads.resize(CountTokenswiftHeads(checkpoint));
  LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->output));
  LS_TRY(LoadDraftParts(checkpoint, PartsOf(*target.config, &model->heads), weights, target, &model->memory));
  return std::shared_ptr<const TokenswiftModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
}

}  // namespace longspec
