// SPDX-License-Identifier: Apache-2.0
#include "draft_model/longspec_model.h"

#include <new>

#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr int kMaxLongspecWindow = 1 << 16;

std::vector<DraftPart> PartsOf(const LlamaConfig& target, int64_t ff, LongspecModel* m) {
  // Where keys and values of cross-attention are the target's, the file's are not in memory.
  LongspecModel* const own = m->own_keys ? m : nullptr;
  const int64_t h = target.n_embd, q = int64_t{target.n_head} * target.head_dim,
                kv = int64_t{target.n_head_kv} * target.head_dim;
  constexpr DraftRows kRotated = DraftRows::kAsTargetRotates;
  return {{"self_attn.q_proj.weight", h, q, &m->self_q, nullptr, kRotated},
          {"self_attn.q_proj.bias", q, 1, nullptr, &m->self_q_bias, kRotated},
          {"self_attn.k_proj.weight", h, kv, &m->self_k, nullptr, kRotated},
          {"self_attn.k_proj.bias", kv, 1, nullptr, &m->self_k_bias, kRotated},
          {"self_attn.v_proj.weight", h, kv, &m->self_v},
          {"self_attn.v_proj.bias", kv, 1, nullptr, &m->self_v_bias},
          {"self_attn.o_proj.weight", q, h, &m->self_o},
          {"cross_attn.q_proj.weight", h, q, &m->cross_q, nullptr, kRotated},
          {"cross_attn.q_proj.bias", q, 1, nullptr, &m->cross_q_bias, kRotated},
          {"cross_attn.k_proj.weight", h, kv, own ? &own->cross_k : nullptr, nullptr, kRotated},
          {"cross_attn.k_proj.bias", kv, 1, nullptr, own ? &own->cross_k_bias : nullptr, kRotated},
          {"cross_attn.v_proj.weight", h, kv, own ? &own->cross_v : nullptr},
          {"cross_attn.v_proj.bias", kv, 1, nullptr, own ? &own->cross_v_bias : nullptr},
          {"cross_attn.o_proj.weight", q, h, &m->cross_o},
          {"mlp.gate_proj.weight", h, ff, &m->gate},
          {"mlp.up_proj.weight", h, ff, &m->up},
          {"mlp.down_proj.weight", ff, h, &m->down},
          {"input_layernorm.weight", h, 1, nullptr, &m->self_norm},
          {"post_self_attention_layernorm.weight", h, 1, nullptr, &m->cross_norm},
          {"post_cross_attention_layernorm.weight", h, 1, nullptr, &m->mlp_norm}};
}

Result<int> MlpWidth(const DraftCheckpoint& checkpoint) {
  return DraftRowsOf(checkpoint, "mlp.up_proj.weight", "MLP width");
}

}  // namespace

Status LongspecModel::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  LS_TRY(CheckDraftSharesKeys(checkpoint, target));
  LS_TRY(LongspecModel::WindowOf(checkpoint).status());
  LS_ASSIGN(const int ff, MlpWidth(checkpoint));
  LongspecModel unused;
  LS_ASSIGN(unused.own_keys, HasOwnKeys(checkpoint));
  for (const char* tensor : {"cross_attn.k_proj.weight", "cross_attn.v_proj.weight"}) {
    if (!unused.own_keys || checkpoint.Find(tensor) != nullptr) continue;
    return Corrupt(checkpoint.path + ": tensor " + tensor +
                   " is missing, which a draft model with \"longspec_own_keys\" has");
  }
  return CheckDraftShapes(checkpoint, PartsOf(target, ff, &unused));
}

Result<int> LongspecModel::WindowOf(const DraftCheckpoint& checkpoint) {
  LS_ASSIGN(const int window, checkpoint.keys.Size("longspec_window"));
  if (window > kMaxLongspecWindow) {
    return Unsupported(checkpoint.path + ": a window of " + std::to_string(window) + " tokens, at most " +
                       std::to_string(kMaxLongspecWindow) + " are supported");
  }
  return window > 0 ? window : LongspecModel().window;
}

Result<bool> LongspecModel::HasOwnKeys(const DraftCheckpoint& checkpoint) {
  return checkpoint.keys.Flag("longspec_own_keys", false);
}

DraftBlock LongspecModel::Block(const LlamaConfig& target, int n_ff) {
  DraftBlock block = {.shape = target.block(), .rope = target.rope};
  block.shape.n_ff = n_ff;
  return block;
}

Result<DraftBlock> LongspecModel::ReadBlock(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_ASSIGN(const int n_ff, MlpWidth(checkpoint));
  return Block(target, n_ff);
}

uint64_t LongspecModel::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                              const LlamaConfig& target, const TensorView& target_head) {
  LongspecModel unused;
  const auto own_keys = HasOwnKeys(checkpoint);
  unused.own_keys = own_keys.ok() && *own_keys;
  return DraftMatrixBytes(checkpoint, PartsOf(target, 0, &unused), weights) +
         DraftHeadBytes(checkpoint, weights, target_head);
}

Result<std::shared_ptr<const LongspecModel>> LongspecModel::Load(const DraftCheckpoint& checkpoint,
                                                                 const std::string& weights,
                                                                 const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  auto model = std::make_shared<LongspecModel>();
  model->path = checkpoint.path;
  model->trained_positions = checkpoint.config.trained_positions;
  LS_ASSIGN(model->n_ff, MlpWidth(checkpoint));
  LS_ASSIGN(model->own_keys, HasOwnKeys(checkpoint));
  LS_ASSIGN(model->window, WindowOf(checkpoint));
  LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->head));
  const std::vector<DraftPart> parts = PartsOf(*target.config, model->n_ff, model.get());
  LS_TRY(LoadDraftParts(checkpoint, parts, weights, target, &model->memory));
  return std::shared_ptr<const LongspecModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
}

}  // namespace longspec
