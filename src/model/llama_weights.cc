// SPDX-License-Identifier: Apache-2.0
#include "model/llama_weights.h"

#include <new>
#include <string>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/llama_tensors.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

std::vector<float> Vector(const TensorView& t) {
  std::vector<float> values(static_cast<size_t>(t.n_elements()));
  DequantizeRow(t.dtype, t.data, t.n_elements(), values.data());
  return values;
}

const TensorView& Tensor(const GgufFile& file, const std::string& name) {
  const TensorView* t = file.FindTensor(name);
  LS_CHECK(t != nullptr);  // ReadLlamaConfig has checked
  return *t;
}

// Packs matrices one after the other, each with the whole team, and reports progress between them.
class Packer {
 public:
  Packer(ThreadTeam& team, kernels::WeightFormat bf16_format, std::byte* memory, uint64_t total_bytes,
         const std::function<bool(double)>& on_progress)
      : team_(team),
        bf16_format_(bf16_format),
        memory_(memory),
        total_(total_bytes),
        on_progress_(on_progress) {}

  Status Pack(const TensorView& tensor, kernels::PackedWeights& out) {
    out = kernels::PackedWeights(tensor, memory_, bf16_format_);
    memory_ += kernels::PackedBytes(tensor.dtype, tensor.shape[0], tensor.n_rows());
    team_.Run([&](ThreadTeam::Worker& worker) {
      const auto share = worker.ShareOf(out.n_groups());
      out.Pack(tensor, share.begin, share.end);
    });
    done_ += tensor.n_bytes;
    if (on_progress_ && !on_progress_(static_cast<double>(done_) / static_cast<double>(total_))) {
      return Cancelled("loading was cancelled");
    }
    return {};
  }

 private:
  ThreadTeam& team_;
  const kernels::WeightFormat bf16_format_;
  std::byte* memory_;  // where the next matrix goes
  uint64_t done_ = 0, total_;
  const std::function<bool(double)>& on_progress_;
};

}  // namespace

Result<std::unique_ptr<const LlamaWeights>> LoadLlamaWeights(const GgufFile& file, const LlamaConfig& config,
                                                             ThreadTeam& team,
                                                             const std::function<bool(double)>& on_progress) {
  auto weights = std::make_unique<LlamaWeights>();
  const std::string output_name = config.tied_embeddings ? "token_embd.weight" : "output.weight";
  uint64_t total = 0, packed = 0;
  const auto count = [&](const TensorView& t) {
    total += t.n_bytes;
    packed += kernels::PackedBytes(t.dtype, t.shape[0], t.n_rows());
  };
  count(Tensor(file, output_name));
  for (int i = 0; i < config.n_layer; ++i) {
    for (const TensorRequirement& need : LayerRequirements(config, i)) {
      if (need.n_out > 1) count(Tensor(file, need.name));
    }
  }
  try {
    weights->memory = AlignedBuffer(packed);
    Packer packer(team, config.bf16_format, weights->memory.data(), total, on_progress);
    weights->layers.resize(static_cast<size_t>(config.n_layer));
    for (int i = 0; i < config.n_layer; ++i) {
      LlamaLayer& layer = weights->layers[static_cast<size_t>(i)];
      const auto tensor = [&](const char* name) -> const TensorView& {
        return Tensor(file, "blk." + std::to_string(i) + "." + name);
      };
      layer.attn_norm = Vector(tensor("attn_norm.weight"));
      LS_TRY(packer.Pack(tensor("attn_q.weight"), layer.q));
      LS_TRY(packer.Pack(tensor("attn_k.weight"), layer.k));
      LS_TRY(packer.Pack(tensor("attn_v.weight"), layer.v));
      LS_TRY(packer.Pack(tensor("attn_output.weight"), layer.attn_output));
      layer.ffn_norm = Vector(tensor("ffn_norm.weight"));
      LS_TRY(packer.Pack(tensor("ffn_gate.weight"), layer.gate));
      LS_TRY(packer.Pack(tensor("ffn_up.weight"), layer.up));
      LS_TRY(packer.Pack(tensor("ffn_down.weight"), layer.down));
      if (config.qkv_bias) {
        layer.q_bias = Vector(tensor("attn_q.bias"));
        layer.k_bias = Vector(tensor("attn_k.bias"));
        layer.v_bias = Vector(tensor("attn_v.bias"));
      }
      if (config.qk_norm) {
        layer.q_norm = Vector(tensor("attn_q_norm.weight"));
        layer.k_norm = Vector(tensor("attn_k_norm.weight"));
      }
    }
    weights->output_norm = Vector(Tensor(file, "output_norm.weight"));
    LS_TRY(packer.Pack(Tensor(file, output_name), weights->output));
    weights->embedding = Tensor(file, "token_embd.weight");
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(file.path() + ": no memory for the weights");
  }
  return std::unique_ptr<const LlamaWeights>(std::move(weights));
}

}  // namespace longspec
