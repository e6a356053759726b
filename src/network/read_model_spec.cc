// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "base/status_macros.h"
#include "kernels/packing.h"
#include "network/architecture.h"
#include "network/model_spec.h"
#include "network/model_tensors.h"
#include "network/read_rope.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

// Bounds that no real model meets and that keep every later product far from overflow.
constexpr uint64_t kMaxLayers = 4096, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24, kMaxContext = 1 << 30;

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

class ModelReader {
 public:
  ModelReader(const GgufFile& file, const Architecture& architecture, std::string name)
      : file_(file), architecture_(architecture), prefix_(name + ".") {
    spec_.architecture = std::move(name);
  }

  Result<ModelSpec> Read(const RopeOptions& rope) {
    LS_ASSIGN(spec_.name, file_.GetStringOr("general.name", ""));
    LS_TRY(ReadSizes());
    LS_TRY(CheckSizes());
    LS_TRY(ReadVocabulary());
    LS_ASSIGN(spec_.rope, ReadRope(file_, spec_.architecture, spec_, rope));
    spec_.rope.pairing = architecture_.pairing;
    LS_TRY(ReadAttentions());
    FillLayers();
    const std::vector<TensorSpec> tensors = TensorsOf(spec_);
    for (const TensorSpec& tensor : tensors) LS_TRY(CheckTensor(tensor));
    LS_TRY(CheckNoOthers(tensors));
    return std::move(spec_);
  }

 private:
  Result<int> Size(const std::string& key, uint64_t max) const {
    LS_ASSIGN(const uint64_t value, file_.GetUint(prefix_ + key));
    if (value == 0 || value > max) {
      return Corrupt(file_.path() + ": " + prefix_ + key + " is " + std::to_string(value) +
                     ", expected 1 to " + std::to_string(max));
    }
    return static_cast<int>(value);
  }

  Result<int> SizeOr(const std::string& key, uint64_t max, int fallback) const {
    if (!file_.Has(prefix_ + key)) return fallback;
    return Size(key, max);
  }

  Status ReadSizes() {
    ModelSizes& s = spec_;
    LS_ASSIGN(s.n_layer, Size("block_count", kMaxLayers));
    LS_ASSIGN(s.n_embd, Size("embedding_length", kMaxWidth));
    LS_ASSIGN(s.n_head, Size("attention.head_count", kMaxWidth));
    LS_ASSIGN(s.n_head_kv, SizeOr("attention.head_count_kv", kMaxWidth, s.n_head));
    LS_ASSIGN(s.head_dim, SizeOr("attention.key_length", kMaxWidth, s.n_embd / s.n_head));
    LS_ASSIGN(s.n_ff, Size("feed_forward_length", kMaxWidth));
    LS_ASSIGN(s.n_ctx_train, Size("context_length", kMaxContext));
    LS_ASSIGN(const double eps, file_.GetFloatOr(prefix_ + "attention.layer_norm_rms_epsilon", 1e-5));
    s.rms_eps = static_cast<float>(eps);
    return {};
  }

  Status CheckSizes() const {
    const ModelSizes& s = spec_;
    if (s.n_head % s.n_head_kv != 0) {
      return Corrupt(file_.path() + ": " + std::to_string(s.n_head) + " attention heads cannot share " +
                     std::to_string(s.n_head_kv) + " key-value heads evenly");
    }
    if (s.head_dim % 16 != 0 || s.head_dim > kernels::kMaxHeadDim) {
      return Unsupported(file_.path() + ": head dimension " + std::to_string(s.head_dim) +
                         " is not a multiple of 16 up to " + std::to_string(kernels::kMaxHeadDim));
    }
    const int64_t q_width = int64_t{s.n_head} * s.head_dim;
    if (s.n_embd % 32 != 0 || s.n_ff % 32 != 0 || q_width % 32 != 0) {
      return Unsupported(file_.path() + ": widths " + std::to_string(s.n_embd) + ", " +
                         std::to_string(s.n_ff) + " and " + std::to_string(q_width) +
                         " must be multiples of 32");
    }
    LS_ASSIGN(const uint64_t experts, file_.GetUintOr(prefix_ + "expert_count", 0));
    if (experts > 0) return Unsupported(file_.path() + ": mixture-of-experts models are not supported");
    return {};
  }

  Status ReadVocabulary() {
    const std::string name = TensorName(TensorRole::kEmbedding);
    const TensorView* embedding = file_.FindTensor(name);
    if (embedding == nullptr) return Corrupt(file_.path() + ": tensor " + name + " is missing");
    if (embedding->n_rows() > static_cast<int64_t>(kMaxVocab)) {
      return Corrupt(file_.path() + ": tensor " + name + " has " + std::to_string(embedding->n_rows()) +
                     " rows, too many");
    }
    spec_.n_logits = spec_.n_vocab = static_cast<int>(embedding->n_rows());
    spec_.tied_embeddings = HeadIn(file_) == embedding;
    if (architecture_.scaled_embedding) {
      spec_.embedding_scale = std::sqrt(static_cast<float>(spec_.n_embd));
    }
    return {};
  }

  // The kinds of attention: that of the layers that see all positions, and that of those with a window.
  Status ReadAttentions() {
    const float scale =
        architecture_.score_scale != nullptr ? architecture_.score_scale(spec_) : spec_.attention().scale;
    spec_.attentions = {{.scale = scale}};
    if (architecture_.window_period == 0) return {};
    AttentionSpec windowed = {.scale = scale};
    LS_ASSIGN(windowed.window, Size("attention.sliding_window", kMaxContext));
    windowed.rope = RopeConfig{.pairing = spec_.rope.pairing,
                               .n_rot = spec_.rope.n_rot,
                               .freq_base = architecture_.window_freq_base};
    spec_.attentions.push_back(std::move(windowed));
    return {};
  }

  void FillLayers() {
    LayerSpec layer = {.qkv_bias = architecture_.qkv_bias ||
                                   file_.FindTensor(TensorName(TensorRole::kQueryBias, 0)) != nullptr,
                       .head_norms = architecture_.head_norms,
                       .branch_norms = architecture_.branch_norms,
                       .gate = architecture_.gate};
    const int period = architecture_.window_period;
    for (int i = 0; i < spec_.n_layer; ++i) {
      layer.attention = period == 0 || i % period == period - 1 ? 0 : 1;
      spec_.layers.push_back(layer);
    }
  }

  Status CheckTensor(const TensorSpec& need) const {
    const TensorView* t = file_.FindTensor(need.name);
    if (t == nullptr) return Corrupt(file_.path() + ": tensor " + need.name + " is missing");
    const auto shape = [](int64_t a, int64_t b) {
      return "(" + std::to_string(a) + ", " + std::to_string(b) + ")";
    };
    if (t->shape[0] != need.n_in || t->n_rows() != need.n_out) {
      return Corrupt(file_.path() + ": tensor " + need.name + " has shape " +
                     shape(t->shape[0], t->n_rows()) + ", expected " + shape(need.n_in, need.n_out));
    }
    if (!CanDequantize(t->dtype)) {
      return Unsupported(file_.path() + ": tensor " + need.name + " has type " +
                         std::string(Info(t->dtype).name) + ", which weights cannot have");
    }
    return {};
  }

  // A tensor that is not used would have changed the answer: biases of outputs, norms of other architectures.
  Status CheckNoOthers(const std::vector<TensorSpec>& tensors) const {
    std::set<std::string> used;
    for (const TensorSpec& tensor : tensors) used.insert(tensor.name);
    for (const TensorView& tensor : file_.tensors()) {
      const std::string& name = tensor.name;
      const bool computes =
          name.ends_with(".bias") || (name.starts_with("blk.") && !name.ends_with("rot_embd.weight"));
      if (!computes || used.contains(name)) continue;
      return Unsupported(file_.path() + ": tensor " + name +
                         " is not supported: what it changes would not be done");
    }
    return {};
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  const std::string prefix_;
  ModelSpec spec_;
};

}  // namespace

AttentionShape ModelSpec::shape_of(const AttentionSpec& kind) const {
  AttentionShape shape = attention();
  shape.scale = kind.scale;
  return shape;
}

Result<ModelSpec> ReadModelSpec(const GgufFile& file, const RopeOptions& rope, Bf16Arithmetic bf16_weights,
                                AttentionKind attention) {
  LS_ASSIGN(const std::string name, file.GetString("general.architecture"));
  const Architecture* architecture = FindArchitecture(name);
  if (architecture == nullptr) {
    return Unsupported(file.path() + ": architecture \"" + name + "\" is not supported; known are " +
                       KnownArchitectures());
  }
  LS_ASSIGN(ModelSpec spec, ModelReader(file, *architecture, name).Read(rope));
  spec.bf16_format = Bf16Format(bf16_weights);
  spec.attention_kind = attention;
  return spec;
}

std::vector<std::pair<std::string, std::string>> DescribeArithmetic(const ModelSpec& spec,
                                                                    const GgufFile& file) {
  std::set<DType> types;
  for (const TensorSpec& tensor : ProductsOf(spec)) types.insert(TensorIn(file, tensor).dtype);
  std::vector<std::pair<std::string, std::string>> lines;
  for (const DType type : types) {
    lines.emplace_back("matmul " + std::string(Info(type).name),
                       kernels::ArithmeticName(kernels::PackedFormat(type, spec.bf16_format)));
  }
  return lines;
}

}  // namespace longspec
