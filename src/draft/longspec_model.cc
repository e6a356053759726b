// SPDX-License-Identifier: Apache-2.0
#include "draft/longspec_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/packed_rows.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace longspec {
namespace {

constexpr int kMaxWindow = 1 << 16;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

bool Close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)); }

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", x);
  return text;
}

int WidthOfMlp(const LongspecCheckpoint& checkpoint) {
  return static_cast<int>(checkpoint.Find("mlp.up_proj.weight")->n_rows());
}

class Fit {
 public:
  Fit(const LongspecCheckpoint& checkpoint, const LlamaConfig& target)
      : checkpoint_(checkpoint), target_(target) {}

  Status Check() const {
    const LongspecConfig& c = checkpoint_.config;
    const struct {
      const char* what;
      int draft, target;
    } sizes[] = {{"hidden size", c.hidden_size, target_.n_embd},
                 {"attention heads", c.n_head, target_.n_head},
                 {"key-value heads", c.n_kv_head, target_.n_head_kv},
                 {"head dimension", c.head_dim, target_.head_dim},
                 {"vocabulary", c.n_vocab, target_.n_vocab}};
    for (const auto& size : sizes) {
      if (size.draft != 0 && size.draft != size.target) {
        return Refuse(size.what, std::to_string(size.draft), std::to_string(size.target));
      }
    }
    if (c.window > kMaxWindow) {
      return Unsupported(checkpoint_.path + ": a window of " + std::to_string(c.window) +
                         " tokens, at most " + std::to_string(kMaxWindow) + " are supported");
    }
    LS_TRY(CheckRope(c));
    return CheckShapes();
  }

 private:
  Status Refuse(const std::string& what, const std::string& draft, const std::string& target) const {
    return Unsupported(checkpoint_.path + ": the draft model does not fit the target: " + what + " " + draft +
                       ", the target has " + target);
  }

  Status CheckRope(const LongspecConfig& c) const {
    if (c.rope_theta == 0.0) return {};  // the file does not say
    if (!Close(c.rope_theta, target_.rope.freq_base)) {
      return Refuse("RoPE base", Number(c.rope_theta), Number(target_.rope.freq_base));
    }
    const std::string scaling = target_.rope.ScalingName();
    if (c.rope_scaling != scaling) return Refuse("RoPE scaling", c.rope_scaling, scaling);
    const bool has_factor = scaling == "linear" || scaling == "yarn";
    if (has_factor && c.rope_factor != 0.0 && !Close(c.rope_factor, target_.rope.scale)) {
      return Refuse("RoPE scaling factor", Number(c.rope_factor), Number(target_.rope.scale));
    }
    return {};
  }

  Status CheckShapes() const {
    const int64_t h = target_.n_embd, q = int64_t{target_.n_head} * target_.head_dim,
                  kv = int64_t{target_.n_head_kv} * target_.head_dim, ff = WidthOfMlp(checkpoint_);
    if (ff % kernels::kQuantBlock != 0) {
      return Unsupported(checkpoint_.path + ": MLP width " + std::to_string(ff) + " is no multiple of 32");
    }
    for (const char* attention : {"self_attn.", "cross_attn."}) {
      const std::string prefix = attention;
      LS_TRY(CheckShape(prefix + "q_proj.weight", h, q));
      LS_TRY(CheckShape(prefix + "q_proj.bias", q, 1));
      for (const char* name : {"k_proj", "v_proj"}) {
        LS_TRY(CheckShape(prefix + name + ".weight", h, kv));
        LS_TRY(CheckShape(prefix + name + ".bias", kv, 1));
      }
      LS_TRY(CheckShape(prefix + "o_proj.weight", q, h));
    }
    LS_TRY(CheckShape("mlp.gate_proj.weight", h, ff));
    LS_TRY(CheckShape("mlp.up_proj.weight", h, ff));
    LS_TRY(CheckShape("mlp.down_proj.weight", ff, h));
    for (const char* name : {"input", "post_self_attention", "post_cross_attention"}) {
      LS_TRY(CheckShape(std::string(name) + "_layernorm.weight", h, 1));
    }
    return {};
  }

  Status CheckShape(const std::string& name, int64_t n_in, int64_t n_out) const {
    const TensorView* tensor = checkpoint_.Find(name);
    if (tensor == nullptr || (tensor->shape[0] == n_in && tensor->n_rows() == n_out)) return {};
    const auto shape = [](int64_t in, int64_t out) {
      return out == 1 ? "(" + std::to_string(in) + ")"
                      : "(" + std::to_string(out) + ", " + std::to_string(in) + ")";
    };
    return Unsupported(checkpoint_.path + ": the draft model does not fit the target: tensor " + name +
                       " has shape " + shape(tensor->shape[0], tensor->n_rows()) + ", the target asks for " +
                       shape(n_in, n_out));
  }

  const LongspecCheckpoint& checkpoint_;
  const LlamaConfig& target_;
};

std::vector<float> Vector(const TensorView& tensor) {
  std::vector<float> values(Z(tensor.n_elements()));
  DequantizeRow(tensor.dtype, tensor.data, tensor.n_elements(), values.data());
  return values;
}

// Checkpoints pair rotated value i of a head with value i + n_rot / 2. Where the target pairs 2i with 2i + 1,
// rows of a query or key matrix change places so that they meet the target's keys as those are stored.
class RotaryOrder {
 public:
  explicit RotaryOrder(const LlamaConfig& target)
      : head_dim_(target.head_dim),
        n_rot_(target.rope.pairing == kernels::RopePairing::kAdjacent ? target.rope.n_rot : 0) {}

  // Which row of the checkpoint becomes this row.
  int64_t operator()(int64_t row) const {
    const int64_t i = row % head_dim_;
    return i < n_rot_ ? row - i + i / 2 + i % 2 * (n_rot_ / 2) : row;
  }

 private:
  int64_t head_dim_, n_rot_;
};

DType TypeInMemory(const TensorView& tensor, std::optional<DType> wanted) {
  if (wanted) return *wanted;
  return Info(tensor.dtype).block_elements > 1 ? tensor.dtype : DType::kQ8_0;
}

enum class Rows : uint8_t { kAsStored, kRotary };

struct Matrix {
  const char* name;
  Rows rows;
  kernels::PackedWeights LongspecModel::*to;
};
// Those that are in memory: keys and values of cross-attention are the target's.
constexpr Matrix kMatrices[] = {{"self_attn.q_proj.weight", Rows::kRotary, &LongspecModel::self_q},
                                {"self_attn.k_proj.weight", Rows::kRotary, &LongspecModel::self_k},
                                {"self_attn.v_proj.weight", Rows::kAsStored, &LongspecModel::self_v},
                                {"self_attn.o_proj.weight", Rows::kAsStored, &LongspecModel::self_o},
                                {"cross_attn.q_proj.weight", Rows::kRotary, &LongspecModel::cross_q},
                                {"cross_attn.o_proj.weight", Rows::kAsStored, &LongspecModel::cross_o},
                                {"mlp.gate_proj.weight", Rows::kAsStored, &LongspecModel::gate},
                                {"mlp.up_proj.weight", Rows::kAsStored, &LongspecModel::up},
                                {"mlp.down_proj.weight", Rows::kAsStored, &LongspecModel::down}};

uint64_t MatrixBytes(const LongspecCheckpoint& checkpoint, std::optional<DType> wanted) {
  uint64_t bytes = 0;
  for (const Matrix& m : kMatrices) {
    const TensorView* tensor = checkpoint.Find(m.name);
    LS_CHECK(tensor != nullptr);  // OpenLongspecCheckpoint has checked
    bytes += kernels::PackedBytes(TypeInMemory(*tensor, wanted), tensor->shape[0], tensor->n_rows());
  }
  return bytes;
}

class Loader {
 public:
  Loader(const LongspecCheckpoint& checkpoint, std::optional<DType> type, const SharedParts& target)
      : checkpoint_(checkpoint), type_(type), target_(target), order_(*target.config) {}

  Result<std::shared_ptr<const LongspecModel>> Load() {
    auto model = std::make_shared<LongspecModel>();
    model->path = checkpoint_.path;
    model->n_ff = WidthOfMlp(checkpoint_);
    model->window = checkpoint_.config.window;
    model->trained_positions = checkpoint_.config.trained_positions;
    LS_TRY(LoadHead(model.get()));
    LoadVectors(model.get());
    LS_TRY(LoadMatrices(model.get()));
    return std::shared_ptr<const LongspecModel>(std::move(model));
  }

 private:
  const TensorView& Tensor(const std::string& name) const {
    const TensorView* tensor = checkpoint_.Find(name);
    LS_CHECK(tensor != nullptr);  // OpenLongspecCheckpoint has checked
    return *tensor;
  }

  void LoadVectors(LongspecModel* model) const {
    model->self_norm = Vector(Tensor("input_layernorm.weight"));
    model->cross_norm = Vector(Tensor("post_self_attention_layernorm.weight"));
    model->mlp_norm = Vector(Tensor("post_cross_attention_layernorm.weight"));
    model->self_q_bias = RotaryVector("self_attn.q_proj.bias");
    model->self_k_bias = RotaryVector("self_attn.k_proj.bias");
    model->self_v_bias = Vector(Tensor("self_attn.v_proj.bias"));
    model->cross_q_bias = RotaryVector("cross_attn.q_proj.bias");
  }

  std::vector<float> RotaryVector(const std::string& name) const {
    const std::vector<float> stored = Vector(Tensor(name));
    std::vector<float> values(stored.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = stored[Z(order_(static_cast<int64_t>(i)))];
    return values;
  }

  Status LoadMatrices(LongspecModel* model) const {
    model->memory = AlignedBuffer(MatrixBytes(checkpoint_, type_));
    std::byte* at = model->memory.data();
    for (const Matrix& m : kMatrices) {
      const TensorView& tensor = Tensor(m.name);
      LS_TRY(Pack(tensor, m.rows, at, &(model->*m.to)));
      at += kernels::PackedBytes(TypeInMemory(tensor, type_), tensor.shape[0], tensor.n_rows());
    }
    return {};
  }

  // Rows in the target's order and of the wanted type, then packed, all by the whole team.
  Status Pack(const TensorView& stored, Rows rows, std::byte* memory, kernels::PackedWeights* to) const {
    TensorView tensor = stored;
    tensor.dtype = TypeInMemory(stored, type_);
    const size_t row_bytes = RowBytes(tensor.dtype, tensor.shape[0]);
    AlignedBuffer bytes(row_bytes * Z(tensor.n_rows()));
    tensor.data = bytes.data();
    tensor.n_bytes = bytes.size();
    *to = kernels::PackedWeights(tensor, memory);
    std::atomic<bool> finite{true};
    target_.team->Run([&](ThreadTeam::Worker& worker) {
      std::vector<float> values(Z(tensor.shape[0]));
      const auto share = worker.ShareOf(static_cast<int>(tensor.n_rows()));
      for (int row = share.begin; row < share.end; ++row) {
        const std::byte* from = stored.row(rows == Rows::kRotary ? order_(row) : row);
        std::byte* out = bytes.data() + Z(row) * row_bytes;
        if (tensor.dtype == stored.dtype) {
          std::memcpy(out, from, row_bytes);
        } else {
          DequantizeRow(stored.dtype, from, stored.shape[0], values.data());
          if (std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) {
            QuantizeRow(tensor.dtype, values.data(), stored.shape[0], out);
          } else {
            finite = false;
          }
        }
      }
      worker.Barrier();
      const auto groups = worker.ShareOf(to->n_groups());
      to->Pack(tensor, groups.begin, groups.end);
    });
    if (finite) return {};
    return Corrupt(checkpoint_.path + ": tensor " + stored.name +
                   " holds a value that is not a finite number");
  }

  Status LoadHead(LongspecModel* model) const {
    model->head = *target_.output;
    const TensorView* vocab = checkpoint_.Find(kLongspecVocabTensor);
    if (vocab == nullptr) return {};
    for (int64_t i = 0; i < vocab->n_elements(); ++i) {
      int64_t token = 0;
      if (vocab->dtype == DType::kI64) {
        std::memcpy(&token, vocab->data + i * 8, 8);
      } else {
        int32_t narrow = 0;
        std::memcpy(&narrow, vocab->data + i * 4, 4);
        token = narrow;
      }
      if (token < 0 || token >= target_.config->n_vocab) {
        return Unsupported(checkpoint_.path + ": the draft model does not fit the target: tensor " +
                           kLongspecVocabTensor + " names token " + std::to_string(token) +
                           ", the target has a vocabulary of " + std::to_string(target_.config->n_vocab));
      }
      model->vocab.push_back(static_cast<int32_t>(token));
    }
    std::ranges::sort(model->vocab);
    const auto repeated = std::ranges::adjacent_find(model->vocab);
    if (repeated != model->vocab.end()) {
      return Corrupt(checkpoint_.path + ": tensor " + kLongspecVocabTensor + " names token " +
                     std::to_string(*repeated) + " twice");
    }
    model->head = GatherPackedRows(model->head, model->vocab, &model->head_memory);
    return {};
  }

  const LongspecCheckpoint& checkpoint_;
  const std::optional<DType> type_;
  const SharedParts& target_;
  const RotaryOrder order_;
};

}  // namespace

size_t LongspecModel::bytes() const { return memory.size() + head_memory.size(); }

uint64_t LongspecModelBytes(const LongspecCheckpoint& checkpoint, const std::string& weights,
                            const TensorView& target_head) {
  const uint64_t bytes = MatrixBytes(checkpoint, FindDType(weights));
  const TensorView* vocab = checkpoint.Find(kLongspecVocabTensor);
  if (vocab == nullptr) return bytes;
  return bytes + kernels::PackedBytes(target_head.dtype, target_head.shape[0], vocab->n_elements());
}

Status CheckLongspecWeights(const std::string& weights) {
  const std::optional<DType> type = FindDType(weights);
  if (weights.empty() ||
      (type && CanDequantize(*type) && Info(*type).block_elements <= kernels::kQuantBlock)) {
    return {};
  }
  return InvalidArgument("--spec-draft-weights " + weights +
                         ": must be one of q8_0, q5_1, q5_0, q4_1, q4_0, bf16, f16, f32");
}

Status CheckLongspecFit(const LongspecCheckpoint& checkpoint, const LlamaConfig& target) {
  return Fit(checkpoint, target).Check();
}

Result<std::shared_ptr<const LongspecModel>> LoadLongspecModel(const LongspecCheckpoint& checkpoint,
                                                               const std::string& weights,
                                                               const SharedParts& target) {
  LS_TRY(CheckLongspecWeights(weights));
  LS_TRY(CheckLongspecFit(checkpoint, *target.config));
  try {
    return Loader(checkpoint, FindDType(weights), target).Load();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
  }
}

}  // namespace longspec
