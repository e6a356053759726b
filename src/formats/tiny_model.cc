// SPDX-License-Identifier: Apache-2.0
#include "formats/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/counter_rng.h"
#include "base/status_macros.h"
#include "formats/gguf_writer.h"
#include "formats/tiny_vocabulary.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace longspec {
namespace {

constexpr const char* kChatTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif "
    "%}";

// Itself, or the model of images and text that has the same weights for text.
bool IsKind(const TinyModelOptions& o, const std::string& architecture) {
  return o.architecture == architecture || o.architecture == architecture + "vl";
}

Status CheckRows(const char* option, int n, DType dtype) {
  const WeightTypeInfo& info = Info(dtype);
  if (!CanDequantize(dtype)) return InvalidArgument("type: weights cannot be " + std::string(info.name));
  if (n % info.block_elements == 0) return {};
  return InvalidArgument(std::string(option) + ": " + std::to_string(n) + " is no multiple of " +
                         std::to_string(info.block_elements) + ", the block size of " +
                         std::string(info.name));
}

int HeadDim(const TinyModelOptions& o) { return o.head_dim > 0 ? o.head_dim : o.n_embd / o.n_heads; }

Status CheckOptions(const TinyModelOptions& o) {
  struct Dimension {
    const char* option;
    int value, min, max;
  };
  const Dimension dimensions[] = {
      {"layers", o.n_layers, 1, 1 << 10},
      {"embd", o.n_embd, 2, 1 << 16},
      {"heads", o.n_heads, 1, 1 << 10},
      {"kv-heads", o.n_kv_heads, 1, 1 << 10},
      {"head-dim", o.head_dim, 0, 1 << 10},
      {"ff", o.n_ff, 1, 1 << 18},
      {"vocab", o.n_vocab, kTinyModelMinVocab + (o.fills_holes ? 6 : 0), 1 << 20},
      {"ctx", o.context_length, 1, (1 << 30) - 1},
      {"window", o.window, 1, (1 << 30) - 1},
  };
  for (const Dimension& d : dimensions) {
    if (d.value >= d.min && d.value <= d.max) continue;
    return InvalidArgument(std::string(d.option) + ": " + std::to_string(d.value) + ", expected " +
                           std::to_string(d.min) + " to " + std::to_string(d.max));
  }
  if (o.architecture != "llama" && !IsKind(o, "qwen2") && !IsKind(o, "qwen3") && !IsKind(o, "gemma3")) {
    return InvalidArgument("arch: " + o.architecture + ", expected llama, qwen2, qwen3 or gemma3");
  }
  if (o.head_dim == 0 && o.n_embd % (2 * o.n_heads) != 0) {
    return InvalidArgument("heads: embd must be an even multiple of it");
  }
  if (o.head_dim % 2 != 0) return InvalidArgument("head-dim: must be even");
  if (o.n_heads % o.n_kv_heads != 0) return InvalidArgument("kv-heads: heads must be a multiple of it");
  if (!std::isfinite(o.rope_freq_base) || o.rope_freq_base <= 0) {
    return InvalidArgument("rope-freq-base: must be positive and finite");
  }
  LS_TRY(CheckRows("embd", o.n_embd, o.dtype));
  LS_TRY(CheckRows("ff", o.n_ff, o.dtype));
  LS_TRY(CheckRows("heads", o.n_heads * HeadDim(o), o.dtype));
  return CheckRows("embd", o.n_embd, o.embedding_dtype.value_or(o.dtype));
}

// Random numbers of one tensor: triangular, mean 0, variance 1, of integers only, so the same everywhere.
class Noise {
 public:
  Noise(uint64_t seed, uint32_t tensor)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, tensor_(tensor) {}

  void Fill(float mean, float deviation, std::vector<float>* out) {
    // Two uniform 16-bit numbers sum to a variance of 2 * 65536^2 / 12.
    const float scale = deviation * 2.4494897F / 65536.0F;
    for (size_t i = 0; i < out->size(); ++i) {
      if (i % 4 == 0) draw_ = Philox4x32(key_, {counter_++, tensor_, 0, 0});
      const uint32_t bits = draw_[i % 4];
      const int sum = static_cast<int>(bits & 0xFFFF) + static_cast<int>(bits >> 16) - 65535;
      (*out)[i] = mean + scale * static_cast<float>(sum);
    }
  }

 private:
  std::array<uint32_t, 2> key_;
  uint32_t tensor_;
  uint32_t counter_ = 0;
  std::array<uint32_t, 4> draw_{};
};

class Builder {
 public:
  explicit Builder(const TinyModelOptions& options) : o_(options) {}

  GgufWriter Build() {
    SetHyperparameters();
    SetTokenizer();
    const DType embedding = o_.embedding_dtype.value_or(o_.dtype);
    AddMatrix("token_embd.weight", embedding, o_.n_embd, o_.n_vocab);
    for (int i = 0; i < o_.n_layers; ++i) AddLayer("blk." + std::to_string(i) + ".");
    AddNorm("output_norm.weight");
    if (!o_.tied) AddMatrix("output.weight", embedding, o_.n_embd, o_.n_vocab);
    return std::move(writer_);
  }

 private:
  void SetHyperparameters() {
    const auto set = [&](const char* key, int value) {
      writer_.SetUint32(o_.architecture + key, static_cast<uint32_t>(value));
    };
    writer_.SetString("general.architecture", o_.architecture);
    writer_.SetString("general.name", o_.name);
    set(".block_count", o_.n_layers);
    set(".context_length", o_.context_length);
    set(".embedding_length", o_.n_embd);
    set(".feed_forward_length", o_.n_ff);
    set(".attention.head_count", o_.n_heads);
    set(".attention.head_count_kv", o_.n_kv_heads);
    writer_.SetFloat32(o_.architecture + ".rope.freq_base", o_.rope_freq_base);
    const std::string scaling = o_.architecture + ".rope.scaling.";
    if (!o_.rope_scaling.empty()) writer_.SetString(scaling + "type", o_.rope_scaling);
    if (o_.rope_original_context > 0) set(".rope.scaling.original_context_length", o_.rope_original_context);
    for (const auto& [key, value] : o_.rope_scaling_numbers) writer_.SetFloat32(scaling + key, value);
    writer_.SetFloat32(o_.architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
    writer_.SetUint32("general.file_type", Info(o_.dtype).file_type);
    set(".vocab_size", o_.n_vocab);
    set(".rope.dimension_count", HeadDim(o_));
    if (IsKind(o_, "gemma3")) set(".attention.sliding_window", o_.window);
    if (o_.head_dim > 0) {
      set(".attention.key_length", o_.head_dim);
      set(".attention.value_length", o_.head_dim);
    }
    writer_.SetUint32("general.quantization_version", 2);
  }

  void SetTokenizer() {
    SetTinyVocabulary(o_.n_vocab, &writer_, o_.fills_holes);
    writer_.SetUint32("tokenizer.ggml.bos_token_id", kTinyModelBos);
    writer_.SetUint32("tokenizer.ggml.eos_token_id", kTinyModelEos);
    writer_.SetUint32("tokenizer.ggml.unknown_token_id", kTinyModelEndOfText);
    writer_.SetUint32("tokenizer.ggml.padding_token_id", kTinyModelEos);
    writer_.SetBool("tokenizer.ggml.add_bos_token", false);
    writer_.SetBool("tokenizer.ggml.add_space_prefix", false);
    writer_.SetString("tokenizer.chat_template", o_.chat_template.empty() ? kChatTemplate : o_.chat_template);
  }

  void AddLayer(const std::string& prefix) {
    const int n_q = HeadDim(o_) * o_.n_heads, n_kv = HeadDim(o_) * o_.n_kv_heads;
    AddNorm(prefix + "attn_norm.weight");
    AddMatrix(prefix + "attn_q.weight", o_.dtype, o_.n_embd, n_q);
    AddMatrix(prefix + "attn_k.weight", o_.dtype, o_.n_embd, n_kv);
    AddMatrix(prefix + "attn_v.weight", o_.dtype, o_.n_embd, n_kv);
    AddMatrix(prefix + "attn_output.weight", o_.dtype, n_q, o_.n_embd);
    AddNorm(prefix + "ffn_norm.weight");
    AddMatrix(prefix + "ffn_gate.weight", o_.dtype, o_.n_embd, o_.n_ff);
    AddMatrix(prefix + "ffn_up.weight", o_.dtype, o_.n_embd, o_.n_ff);
    AddMatrix(prefix + "ffn_down.weight", o_.dtype, o_.n_ff, o_.n_embd);
    if (IsKind(o_, "qwen2")) {
      AddVector(prefix + "attn_q.bias", n_q, 0.0F, 0.5F);
      AddVector(prefix + "attn_k.bias", n_kv, 0.0F, 0.5F);
      AddVector(prefix + "attn_v.bias", n_kv, 0.0F, 0.5F);
    }
    if (IsKind(o_, "gemma3")) {
      AddNorm(prefix + "post_attention_norm.weight");
      AddNorm(prefix + "post_ffw_norm.weight");
    }
    if (IsKind(o_, "qwen3") || IsKind(o_, "gemma3")) {
      AddVector(prefix + "attn_q_norm.weight", HeadDim(o_), 1.0F, 0.1F);
      AddVector(prefix + "attn_k_norm.weight", HeadDim(o_), 1.0F, 0.1F);
    }
  }

  void AddNorm(const std::string& name) { AddVector(name, o_.n_embd, 1.0F, 0.1F); }

  void AddVector(const std::string& name, int n, float mean, float deviation) {
    std::vector<float> values(static_cast<size_t>(n));
    Noise(o_.seed, n_tensors_++).Fill(mean, deviation, &values);
    writer_.AddTensor(name, DType::kF32, {n}, std::as_bytes(std::span(values)));
  }

  // Deviation 1 / sqrt(n_in): a row's product with a vector of variance 1 has variance 1.
  void AddMatrix(const std::string& name, DType dtype, int n_in, int n_out) {
    std::vector<float> row(static_cast<size_t>(n_in));
    const size_t row_bytes = RowBytes(dtype, n_in);
    std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(n_out));
    Noise noise(o_.seed, n_tensors_++);
    for (int r = 0; r < n_out; ++r) {
      noise.Fill(0.0F, 1.0F / std::sqrt(static_cast<float>(n_in)), &row);
      QuantizeRow(dtype, row.data(), n_in, bytes.data() + static_cast<size_t>(r) * row_bytes);
    }
    writer_.AddTensor(name, dtype, {n_in, n_out}, bytes);
  }

  const TinyModelOptions& o_;
  GgufWriter writer_;
  uint32_t n_tensors_ = 0;
};

}  // namespace

Status WriteTinyModel(const TinyModelOptions& options, const std::string& path) {
  LS_TRY(CheckOptions(options));
  return Builder(options).Build().Write(path);
}

Result<std::vector<std::byte>> TinyModelBytes(const TinyModelOptions& options) {
  LS_TRY(CheckOptions(options));
  return Builder(options).Build().Serialize();
}

}  // namespace longspec
