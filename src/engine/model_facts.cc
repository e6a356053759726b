// SPDX-License-Identifier: Apache-2.0
#include "engine/model_facts.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "attention/attention_kind.h"
#include "engine/model_template.h"
#include "jinja/chat_template.h"
#include "network/model_tensors.h"
#include "tensor/dtype.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

struct FileType {
  uint64_t id;
  std::string_view name;
};

// general.file_type of files of several types, as llama.cpp numbers them.
constexpr FileType kMixtures[] = {
    {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"}, {13, "Q3_K_L"},
    {14, "Q4_K_S"}, {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
};

// A display value: a key that is absent or of another type is simply not shown.
template <typename T>
T ValueOr(const Result<T>& result, T fallback) {
  return result.ok() ? *result : fallback;
}

using TypeBytes = std::vector<std::pair<std::string, uint64_t>>;

// Bytes of each element type, most first.
TypeBytes BytesByType(const GgufFile& file) {
  TypeBytes types;
  for (const TensorView& tensor : file.tensors()) {
    const std::string_view name = Info(tensor.dtype).name;
    auto it =
        std::find_if(types.begin(), types.end(), [name](const auto& type) { return type.first == name; });
    if (it == types.end()) it = types.insert(it, {std::string(name), 0});
    it->second += tensor.n_bytes;
  }
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return types;
}

std::string FileTypeName(const GgufFile& file, const TypeBytes& types) {
  if (const auto id = file.GetUint("general.file_type"); id.ok()) {
    for (const FileType& type : kMixtures) {
      if (type.id == *id) return std::string(type.name);
    }
    if (const auto type = FindFileType(*id)) return std::string(Info(*type).name);
  }
  return types.empty() ? "" : types.front().first;
}

void DescribeTemplate(const Result<ModelTemplate>& used, ModelInfo* info) {
  info->has_chat_template = !used.ok() || used->is_given;
  if (used.ok()) info->chat_template = used->source;
  info->chat_template_error =
      used.ok() ? ChatTemplate::Parse(used->source).status().message() : used.status().message();
}

}  // namespace

void DescribeFile(const GgufFile& file, const ModelOptions& options, ModelInfo* info) {
  info->path = file.path();
  info->file_bytes = file.file_bytes();
  for (const TensorView& tensor : file.tensors())
    info->n_parameters += static_cast<uint64_t>(tensor.n_elements());
  info->weight_bytes_by_type = BytesByType(file);
  info->file_type = FileTypeName(file, info->weight_bytes_by_type);
  info->architecture = ValueOr(file.GetStringOr("general.architecture", ""), std::string());
  info->name = ValueOr(file.GetStringOr("general.name", ""), std::string());
  info->tokenizer_model = ValueOr(file.GetStringOr("tokenizer.ggml.model", ""), std::string());
  info->tokenizer_pre = ValueOr(file.GetStringOr("tokenizer.ggml.pre", ""), std::string());
  DescribeTemplate(TemplateOf(file, options.chat_template), info);
  const Status kind = Tokenizer::CheckKind(info->tokenizer_model,
                                           info->tokenizer_pre.empty() ? "default" : info->tokenizer_pre);
  info->missing = kind.message();
}

void DescribeNetwork(const ModelSpec& spec, ModelInfo* info) {
  info->architecture = spec.architecture;
  info->name = spec.name;
  info->n_layer = spec.n_layer;
  info->n_embd = spec.n_embd;
  info->n_head = spec.n_head;
  info->n_head_kv = spec.n_head_kv;
  info->head_dim = spec.head_dim;
  info->n_ff = spec.n_ff;
  info->n_vocab = spec.n_vocab;
  info->n_ctx_train = spec.n_ctx_train;
  info->rope_freq_base = spec.rope.freq_base;
  info->rope_scaling = spec.rope.Describe();
}

void DescribeOtherNetwork(const GgufFile& file, const Status& why, ModelInfo* info) {
  const auto size = [&](const std::string& key) {
    const uint64_t value = ValueOr(file.GetUintOr(info->architecture + "." + key, 0), uint64_t{0});
    return static_cast<int>(std::min<uint64_t>(value, std::numeric_limits<int>::max()));
  };
  info->n_layer = size("block_count");
  info->n_embd = size("embedding_length");
  info->n_head = size("attention.head_count");
  info->n_head_kv = file.Has(info->architecture + ".attention.head_count_kv")
                        ? size("attention.head_count_kv")
                        : info->n_head;
  info->head_dim = size("attention.key_length");
  if (info->head_dim == 0 && info->n_head > 0) info->head_dim = info->n_embd / info->n_head;
  info->n_ff = size("feed_forward_length");
  info->n_ctx_train = size("context_length");
  const TensorView* const embedding = file.FindTensor(TensorName(TensorRole::kEmbedding));
  if (embedding != nullptr) info->n_vocab = static_cast<int>(embedding->n_rows());
  const std::string path = file.path() + ": ";
  info->missing = why.message().starts_with(path) ? why.message().substr(path.size()) : why.message();
}

void DescribeDevice(const DeviceFacts& device, ModelInfo* info) {
  info->device = device.device;
  info->cpu = device.processor;
  info->kernels = device.kernels;
  info->kernels_available = device.kernels_available;
  info->threads = device.threads;
}

void DescribeOperations(const ModelSpec& spec, const GgufFile& file, const ModelOptions& options,
                        ModelInfo* info) {
  info->arithmetic = DescribeArithmetic(spec, file);
  const std::string scores(AttentionArithmetic(options.cache_type_k));
  const std::string values(AttentionArithmetic(options.cache_type_v));
  const std::string_view kind = FindAttention(options.attention)->name;
  info->arithmetic.emplace_back("attention",
                                (scores == values ? scores : scores + " scores, " + values + " values") +
                                    (kind.empty() ? "" : ", " + std::string(kind)));
  info->arithmetic.emplace_back("KV cache", "keys " + std::string(CacheTypeName(options.cache_type_k)) +
                                                ", values " +
                                                std::string(CacheTypeName(options.cache_type_v)));
}

}  // namespace longspec
