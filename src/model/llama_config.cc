// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "base/status_macros.h"
#include "kernels/packing.h"
#include "model/architecture.h"
#include "model/llama.h"
#include "model/llama_tensors.h"
#include "model/read_rope.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

// Bounds that no real model meets and that keep every later product far from overflow.
constexpr uint64_t kMaxLayers = 4096, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24, kMaxContext = 1 << 30;

Result<int> ReadSize(const GgufFile& file, const std::string& key, uint64_t max) {
  LS_ASSIGN(const uint64_t value, file.GetUint(key));
  if (value == 0 || value > max) {
    return Corrupt(file.path() + ": " + key + " is " + std::to_string(value) + ", expected 1 to " +
                   std::to_string(max));
  }
  return static_cast<int>(value);
}

Result<int> ReadSizeOr(const GgufFile& file, const std::string& key, uint64_t max, int fallback) {
  if (!file.Has(key)) return fallback;
  return ReadSize(file, key, max);
}

Status CheckTensor(const GgufFile& file, const TensorRequirement& need) {
  const TensorView* t = file.FindTensor(need.name);
  if (t == nullptr) return Corrupt(file.path() + ": tensor " + need.name + " is missing");
  const auto shape = [](int64_t a, int64_t b) {
    return "(" + std::to_string(a) + ", " + std::to_string(b) + ")";
  };
  if (t->shape[0] != need.n_in || t->n_rows() != need.n_out) {
    return Corrupt(file.path() + ": tensor " + need.name + " has shape " + shape(t->shape[0], t->n_rows()) +
                   ", expected " + shape(need.n_in, need.n_out));
  }
  if (!CanDequantize(t->dtype)) {
    return Unsupported(file.path() + ": tensor " + need.name + " has type " +
                       std::string(Info(t->dtype).name) + ", which weights cannot have");
  }
  return {};
}

// The packed format that multiplies in this arithmetic.
kernels::WeightFormat Bf16Format(Bf16Arithmetic arithmetic) {
  switch (arithmetic) {
    case Bf16Arithmetic::kF32:
      return kernels::WeightFormat::kBF16;
    case Bf16Arithmetic::kBF16:
      return kernels::WeightFormat::kBF16Pairs;
    case Bf16Arithmetic::kBF16Amx:
      return kernels::WeightFormat::kBF16Amx;
  }
  return kernels::WeightFormat::kBF16;
}

}  // namespace

AttentionShape LlamaConfig::attention() const {
  return {.n_head = n_head,
          .n_kv_head = n_head_kv,
          .head_dim = head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

BlockShape LlamaConfig::block() const {
  return {.n_embd = n_embd,
          .n_head = n_head,
          .n_head_kv = n_head_kv,
          .head_dim = head_dim,
          .n_ff = n_ff,
          .n_rot = rope.n_rot,
          .rms_eps = rms_eps,
          .pairing = rope.pairing};
}

int LlamaConfig::context_length() const {
  // A file's context length may be what it is after scaling; then it names the one before.
  const int unscaled = rope.orig_ctx > 0 ? rope.orig_ctx : n_ctx_train;
  const double scaled = std::max(1.0 * n_ctx_train, unscaled * std::max(1.0, rope.scale));
  return static_cast<int>(std::min(scaled, 2147483647.0));
}

KvLayout LlamaConfig::kv_layout(CacheType k, CacheType v) const {
  return {.k_type = k, .v_type = v, .n_kv_head = n_head_kv, .head_dim = head_dim};
}

std::vector<TensorRequirement> LayerRequirements(const LlamaConfig& c, int layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const int64_t q = int64_t{c.n_head} * c.head_dim, kv = int64_t{c.n_head_kv} * c.head_dim;
  std::vector<TensorRequirement> needs = {
      {prefix + "attn_norm.weight", c.n_embd, 1},     {prefix + "attn_q.weight", c.n_embd, q},
      {prefix + "attn_k.weight", c.n_embd, kv},       {prefix + "attn_v.weight", c.n_embd, kv},
      {prefix + "attn_output.weight", q, c.n_embd},   {prefix + "ffn_norm.weight", c.n_embd, 1},
      {prefix + "ffn_gate.weight", c.n_embd, c.n_ff}, {prefix + "ffn_up.weight", c.n_embd, c.n_ff},
      {prefix + "ffn_down.weight", c.n_ff, c.n_embd}};
  if (c.qkv_bias) {
    needs.push_back({prefix + "attn_q.bias", q, 1});
    needs.push_back({prefix + "attn_k.bias", kv, 1});
    needs.push_back({prefix + "attn_v.bias", kv, 1});
  }
  if (c.qk_norm) {
    needs.push_back({prefix + "attn_q_norm.weight", c.head_dim, 1});
    needs.push_back({prefix + "attn_k_norm.weight", c.head_dim, 1});
  }
  return needs;
}

namespace {

// A tensor that is not used would have changed the answer: biases of outputs, norms of other architectures.
Status CheckNoOthers(const GgufFile& file, const LlamaConfig& c) {
  std::set<std::string> used;
  for (int layer = 0; layer < c.n_layer; ++layer) {
    for (const TensorRequirement& need : LayerRequirements(c, layer)) used.insert(need.name);
  }
  for (const TensorView& tensor : file.tensors()) {
    const std::string& name = tensor.name;
    const bool computes =
        name.ends_with(".bias") || (name.starts_with("blk.") && !name.ends_with("rot_embd.weight"));
    if (!computes || used.contains(name)) continue;
    return Unsupported(file.path() + ": tensor " + name +
                       " is not supported: what it changes would not be done");
  }
  return {};
}

}  // namespace

Result<LlamaConfig> ReadLlamaConfig(const GgufFile& file, const RopeOptions& rope,
                                    Bf16Arithmetic bf16_weights, AttentionKind attention) {
  LlamaConfig c;
  LS_ASSIGN(c.architecture, file.GetString("general.architecture"));
  const Architecture* architecture = FindArchitecture(c.architecture);
  if (architecture == nullptr) {
    return Unsupported(file.path() + ": architecture \"" + c.architecture +
                       "\" is not supported; known are " + KnownArchitectures());
  }
  c.qkv_bias = architecture->qkv_bias || file.FindTensor("blk.0.attn_q.bias") != nullptr;
  c.qk_norm = architecture->qk_norm;
  LS_ASSIGN(c.name, file.GetStringOr("general.name", ""));
  const std::string prefix = c.architecture + ".";
  LS_ASSIGN(c.n_layer, ReadSize(file, prefix + "block_count", kMaxLayers));
  LS_ASSIGN(c.n_embd, ReadSize(file, prefix + "embedding_length", kMaxWidth));
  LS_ASSIGN(c.n_head, ReadSize(file, prefix + "attention.head_count", kMaxWidth));
  LS_ASSIGN(c.n_head_kv, ReadSizeOr(file, prefix + "attention.head_count_kv", kMaxWidth, c.n_head));
  LS_ASSIGN(c.head_dim, ReadSizeOr(file, prefix + "attention.key_length", kMaxWidth, c.n_embd / c.n_head));
  LS_ASSIGN(c.n_ff, ReadSize(file, prefix + "feed_forward_length", kMaxWidth));
  LS_ASSIGN(c.n_ctx_train, ReadSize(file, prefix + "context_length", kMaxContext));
  LS_ASSIGN(const double eps, file.GetFloatOr(prefix + "attention.layer_norm_rms_epsilon", 1e-5));
  c.rms_eps = static_cast<float>(eps);
  if (c.n_head % c.n_head_kv != 0) {
    return Corrupt(file.path() + ": " + std::to_string(c.n_head) + " attention heads cannot share " +
                   std::to_string(c.n_head_kv) + " key-value heads evenly");
  }
  if (c.head_dim % 16 != 0 || c.head_dim > kernels::kMaxHeadDim) {
    return Unsupported(file.path() + ": head dimension " + std::to_string(c.head_dim) +
                       " is not a multiple of 16 up to " + std::to_string(kernels::kMaxHeadDim));
  }
  if (c.n_embd % 32 != 0 || c.n_ff % 32 != 0 || int64_t{c.n_head} * c.head_dim % 32 != 0) {
    return Unsupported(file.path() + ": widths " + std::to_string(c.n_embd) + ", " + std::to_string(c.n_ff) +
                       " and " + std::to_string(int64_t{c.n_head} * c.head_dim) + " must be multiples of 32");
  }
  LS_ASSIGN(const uint64_t experts, file.GetUintOr(prefix + "expert_count", 0));
  if (experts > 0) return Unsupported(file.path() + ": mixture-of-experts models are not supported");

  const TensorView* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) return Corrupt(file.path() + ": tensor token_embd.weight is missing");
  if (embedding->n_rows() > static_cast<int64_t>(kMaxVocab)) {
    return Corrupt(file.path() + ": tensor token_embd.weight has " + std::to_string(embedding->n_rows()) +
                   " rows, too many");
  }
  c.n_logits = c.n_vocab = static_cast<int>(embedding->n_rows());
  LS_TRY(CheckTensor(file, {"token_embd.weight", c.n_embd, c.n_vocab}));
  LS_TRY(CheckTensor(file, {"output_norm.weight", c.n_embd, 1}));
  c.tied_embeddings = file.FindTensor("output.weight") == nullptr;
  if (!c.tied_embeddings) LS_TRY(CheckTensor(file, {"output.weight", c.n_embd, c.n_vocab}));
  for (int layer = 0; layer < c.n_layer; ++layer) {
    for (const TensorRequirement& need : LayerRequirements(c, layer)) LS_TRY(CheckTensor(file, need));
  }
  LS_TRY(CheckNoOthers(file, c));
  LS_ASSIGN(c.rope, ReadRope(file, c, rope));
  c.rope.pairing = architecture->pairing;
  c.bf16_format = Bf16Format(bf16_weights);
  c.attention_kind = attention;
  return c;
}

std::vector<std::pair<std::string, std::string>> DescribeArithmetic(const LlamaConfig& config,
                                                                    const GgufFile& file) {
  std::set<DType> types;
  const auto note = [&](const std::string& name) { types.insert(file.FindTensor(name)->dtype); };
  note(config.tied_embeddings ? "token_embd.weight" : "output.weight");
  for (int layer = 0; layer < config.n_layer; ++layer) {
    for (const TensorRequirement& need : LayerRequirements(config, layer)) {
      if (need.n_out > 1) note(need.name);
    }
  }
  std::vector<std::pair<std::string, std::string>> lines;
  for (const DType type : types) {
    lines.emplace_back("matmul " + std::string(Info(type).name),
                       kernels::ArithmeticName(kernels::PackedFormat(type, config.bf16_format)));
  }
  return lines;
}

}  // namespace longspec
