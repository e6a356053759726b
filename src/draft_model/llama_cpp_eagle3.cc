// SPDX-License-Identifier: Apache-2.0
#include "draft_model/llama_cpp_eagle3.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft_model/draft_weights.h"
#include "network/read_rope.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEagle3Keys = "eagle3.";
constexpr std::string_view kEagle3Block = "blk.0.";
constexpr char kTargetLayers[] = "eagle3.target_layers";
constexpr int64_t kMostToken = 1 << 30;

// Its name and the published one.
constexpr std::pair<std::string_view, std::string_view> kLlamaCppNames[] = {
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "input_norm.weight"},
    {"blk.0.attn_norm.weight", "midlayer.input_layernorm.weight"},
    {"blk.0.attn_norm_2.weight", "midlayer.hidden_norm.weight"},
    {"blk.0.attn_q.weight", "midlayer.self_attn.q_proj.weight"},
    {"blk.0.attn_k.weight", "midlayer.self_attn.k_proj.weight"},
    {"blk.0.attn_v.weight", "midlayer.self_attn.v_proj.weight"},
    {"blk.0.attn_q.bias", "midlayer.self_attn.q_proj.bias"},
    {"blk.0.attn_k.bias", "midlayer.self_attn.k_proj.bias"},
    {"blk.0.attn_v.bias", "midlayer.self_attn.v_proj.bias"},
    {"blk.0.attn_output.weight", "midlayer.self_attn.o_proj.weight"},
    {"blk.0.ffn_norm.weight", "midlayer.post_attention_layernorm.weight"},
    {"blk.0.ffn_gate.weight", "midlayer.mlp.gate_proj.weight"},
    {"blk.0.ffn_up.weight", "midlayer.mlp.up_proj.weight"},
    {"blk.0.ffn_down.weight", "midlayer.mlp.down_proj.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"token_embd.weight", "embed_tokens.weight"},
    {"rope_freqs.weight", "rope_freqs.weight"},
    {"d2t", "d2t"},
};

bool IsPairedRows(std::string_view name) {
  return name.starts_with("blk.0.attn_q.") || name.starts_with("blk.0.attn_k.");
}

// A whole number, if the key is there: to json[name].
Status CopySize(const GgufFile& file, std::string_view key, const char* name, Json* json) {
  const std::string full = std::string(kEagle3Keys) + std::string(key);
  if (!file.Has(full)) return {};
  LS_ASSIGN((*json)[name], file.GetUint(full));
  return {};
}

// Rotation, which ReadRope has checked.
Status CopyRotation(const GgufFile& file, const Json& config, Json* json) {
  ModelSizes like;
  like.head_dim = config["head_dim"].get<int>();
  like.n_ctx_train = config.value("max_position_embeddings", 1);
  LS_ASSIGN(const RopeConfig rope, ReadRope(file, "eagle3", like, {}));
  if (rope.n_rot != like.head_dim) {
    return Unsupported(file.path() + ": eagle3.rope.dimension_count is " + std::to_string(rope.n_rot) +
                       "; all of a head, " + std::to_string(like.head_dim) + ", is supported");
  }
  (*json)["rope_theta"] = rope.freq_base;
  const bool yarn = rope.scaling == RopeOptions::Scaling::kYarn;
  if (rope.ext_factor != 1 || (!yarn && rope.attn_factor != 1)) {
    return Unsupported(file.path() +
                       ": eagle3.rope.scaling: a share or magnitude of its own is not supported");
  }
  if (rope.scale == 1) return {};
  Json scaling = {{"rope_type", yarn ? "yarn" : "linear"}, {"factor", rope.scale}};
  if (yarn) {
    scaling["original_max_position_embeddings"] = rope.orig_ctx;
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    scaling["attention_factor"] = rope.attn_factor * rope.YarnMagnitude();
  }
  (*json)["rope_scaling"] = std::move(scaling);
  return {};
}

// By outputs, as "eagle_config" numbers them.
Result<Json> OutputsOf(const GgufFile& file) {
  if (!file.Has(kTargetLayers)) {
    return Corrupt(file.path() + ": has llama.cpp's tensors of an EAGLE-3 draft, but no key " +
                   kTargetLayers + "; convert it with llama.cpp's present convert_hf_to_gguf.py");
  }
  LS_ASSIGN(const std::vector<int64_t> inputs, file.GetInts(kTargetLayers));
  Json outputs = Json::array();
  for (const int64_t input : inputs) {
    if (input < 1) {
      return Unsupported(file.path() + ": " + kTargetLayers + " numbers layers by what they read, and " +
                         std::to_string(input) + " is no layer's output");
    }
    outputs.push_back(input - 1);
  }
  return outputs;
}

// A head's rows (j, half) become (half, j). REQUIRES: its rows are whole heads, each of whole bytes.
TensorView Unpair(const TensorView& stored, int head_dim, std::vector<std::shared_ptr<const void>>* owners) {
  const bool is_vector = stored.n_rows() == 1;
  const size_t n_rows = Z(is_vector ? stored.shape[0] : stored.n_rows());
  const size_t row_bytes = RowBytes(stored.dtype, is_vector ? 1 : stored.shape[0]);
  auto bytes = std::make_shared<AlignedBuffer>(stored.n_bytes);
  const size_t dim = Z(head_dim), half = dim / 2;
  for (size_t row = 0; row < n_rows; ++row) {
    const size_t i = row % dim;
    const size_t from = row - i + i % half * 2 + i / half;
    std::memcpy(bytes->data() + row * row_bytes, stored.data + from * row_bytes, row_bytes);
  }
  TensorView tensor = stored;
  tensor.data = bytes->data();
  owners->push_back(std::move(bytes));
  return tensor;
}

// Row i stands for token d2t[i], as an offset of i.
Result<TensorView> OffsetsOf(const std::string& path, const TensorView& stored,
                             std::vector<std::shared_ptr<const void>>* owners) {
  if (stored.dtype != DType::kI64 && stored.dtype != DType::kI32) {
    return Corrupt(path + ": tensor d2t must hold I32 or I64 tokens");
  }
  std::vector<int64_t> offsets = DraftTokens(stored);
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] > kMostToken)
      return Corrupt(path + ": tensor d2t: row " + std::to_string(i) + " stands for token " +
                     std::to_string(offsets[i]));
    offsets[i] -= static_cast<int64_t>(i);
  }
  TensorView tensor = stored;
  tensor.dtype = DType::kI64;
  tensor.n_bytes = offsets.size() * sizeof(int64_t);
  auto bytes = std::make_shared<AlignedBuffer>(tensor.n_bytes);
  std::memcpy(bytes->data(), offsets.data(), tensor.n_bytes);
  tensor.data = bytes->data();
  owners->push_back(std::move(bytes));
  return tensor;
}

}  // namespace

bool IsLlamaCppEagle3(const GgufFile& file) {
  const auto architecture = file.GetString("general.architecture");
  if (!architecture.ok() || *architecture != "eagle3") return false;
  return file.Has(kTargetLayers) || std::ranges::any_of(file.tensors(), [](const TensorView& t) {
           return t.name.starts_with(kEagle3Block);
         });
}

Result<std::string> LlamaCppEagle3Config(const GgufFile& file) {
  Json config = {{"longspec_draft", "eagle3"}};
  LS_ASSIGN(const uint64_t n_layer, file.GetUintOr("eagle3.block_count", 1));
  if (n_layer != 1) {
    return Unsupported(file.path() + ": eagle3.block_count is " + std::to_string(n_layer) +
                       "; drafts of one layer are supported");
  }
  LS_TRY(CopySize(file, "embedding_length", "hidden_size", &config));
  LS_TRY(CopySize(file, "attention.head_count", "num_attention_heads", &config));
  LS_TRY(CopySize(file, "attention.head_count_kv", "num_key_value_heads", &config));
  LS_TRY(CopySize(file, "attention.key_length", "head_dim", &config));
  LS_TRY(CopySize(file, "feed_forward_length", "intermediate_size", &config));
  LS_TRY(CopySize(file, "vocab_size", "vocab_size", &config));
  LS_TRY(CopySize(file, "context_length", "max_position_embeddings", &config));
  LS_TRY(CopySize(file, "target_hidden_size", "target_hidden_size", &config));
  LS_ASSIGN(config["rms_norm_eps"], file.GetFloat("eagle3.attention.layer_norm_rms_epsilon"));
  LS_ASSIGN(config["norm_before_residual"], file.GetBoolOr("eagle3.norm_before_residual", false));
  LS_ASSIGN(config["norm_before_fc"], file.GetBoolOr("eagle3.norm_before_fc", false));
  LS_ASSIGN(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"], OutputsOf(file));
  if (!config.contains("head_dim")) {
    LS_ASSIGN(const uint64_t width, file.GetUint("eagle3.embedding_length"));
    LS_ASSIGN(const uint64_t heads, file.GetUint("eagle3.attention.head_count"));
    if (heads == 0) return Corrupt(file.path() + ": eagle3.attention.head_count is 0");
    config["head_dim"] = width / heads;
  }
  const auto head_dim = config["head_dim"].get<uint64_t>();
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > (1U << 16)) {
    return Corrupt(file.path() + ": a head dimension of " + std::to_string(head_dim) + " in its keys");
  }
  LS_TRY(CopyRotation(file, config, &config));
  return config.dump();
}

Status AddLlamaCppEagle3Tensors(std::shared_ptr<const GgufFile> file, DraftCheckpoint* checkpoint) {
  const int head_dim = checkpoint->config.head_dim;
  for (const TensorView& stored : file->tensors()) {
    const auto* const name =
        std::ranges::find(kLlamaCppNames, stored.name, &std::pair<std::string_view, std::string_view>::first);
    TensorView tensor = stored;
    if (stored.name == "d2t") {
      LS_ASSIGN(tensor, OffsetsOf(file->path(), stored, &checkpoint->owners));
    } else if (IsPairedRows(stored.name)) {
      const int64_t n_rows = stored.n_rows() == 1 ? stored.shape[0] : stored.n_rows();
      const bool is_whole = stored.n_rows() > 1 || Info(stored.dtype).block_elements == 1;
      if (n_rows % head_dim != 0 || !is_whole) {
        return Corrupt(file->path() + ": tensor " + stored.name + " has " + std::to_string(n_rows) +
                       " rows of type " + std::string(Info(stored.dtype).name) + ", which are no heads of " +
                       std::to_string(head_dim));
      }
      tensor = Unpair(stored, head_dim, &checkpoint->owners);
    }
    if (name != std::end(kLlamaCppNames)) tensor.name = name->second;
    checkpoint->tensors.push_back(std::move(tensor));
  }
  checkpoint->owners.push_back(std::move(file));
  return {};
}

}  // namespace longspec
