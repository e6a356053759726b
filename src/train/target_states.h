// SPDX-License-Identifier: Apache-2.0
//
// The target itself in LibTorch, for shards that hold tokens alone: what longspec-train needs of it is
// computed where it is used and nowhere kept (on a GPU that is faster than reading it), and longspec-write
// lets it write texts, many at once. Its arithmetic is LibTorch's, not the engine's: states differ by
// rounding, which a draft does not notice, and what it writes is another draw of the same distribution.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "longspec/status.h"
#include "train/feature_set.h"

namespace longspec::train {

struct WriteOptions {
  int max_tokens = 256;                      // written after a beginning at most
  std::vector<float> temperatures = {0.7F};  // sequence i has the i-th, and so on around; 0: greedy
  std::vector<int32_t> ends;                 // tokens that end a sequence, and are written
};

class TargetStates {
 public:
  // Matrices have `type`, f32 or bf16; the residual stream is f32. Architectures llama, qwen2 and
  // qwen3, weights of any type that a file may have.
  static Result<TargetStates> Load(const GgufFile& file, const FeatureTarget& target, at::Device device,
                                   at::ScalarType type);

  // What `needs` names of a batch that has its tokens, on this device. Sequences stand at positions 0, 1, ...
  void Compute(const ShardNeeds& needs, Batch* batch) const;

  // Beginnings and what is written after each; they have one token at least. on_step, called after each token
  // of all, returns false to stop: then nothing is returned.
  std::vector<std::vector<int32_t>> Write(std::span<const std::vector<int32_t>> beginnings,
                                          int64_t first_index, const WriteOptions& options,
                                          const std::function<bool(int)>& on_step) const;

 private:
  struct Layer {
    at::Tensor attention_norm, mlp_norm;  // (n_embd) f32
    at::Tensor query_norm, key_norm;      // (head_dim) f32, undefined: none
    at::Tensor qkv, qkv_bias;             // ((n_head + 2 n_head_kv) head_dim, n_embd), bias undefined: none
    at::Tensor output;                    // (n_embd, n_head head_dim)
    at::Tensor gate_up, down;             // (2 n_ff, n_embd), (n_embd, n_ff)
  };
  struct Packed;
  struct Cache;

  TargetStates() = default;
  at::Tensor Norm(const at::Tensor& x, const at::Tensor& weight) const;
  // Queries, keys and values of rows, queries and keys rotated; (rows, heads, head_dim).
  struct Projected {
    at::Tensor q, k, v;
  };
  Projected Project(const Layer& layer, const at::Tensor& x, const at::Tensor& positions) const;
  // x after attention's output was added, after the MLP's.
  at::Tensor Finish(const Layer& layer, const at::Tensor& x, const at::Tensor& mixed) const;
  // Of the rows' tokens; visit(layer, projected, x) after each layer. What the head reads, (rows, n_embd).
  using Visit = std::function<void(int layer, const Projected&, const at::Tensor& x)>;
  at::Tensor Prefill(const at::Tensor& tokens, const Packed& packed, const Visit& visit) const;
  at::Tensor Choose(const at::Tensor& x, const at::Tensor& temperatures) const;

  FeatureTarget target_;
  at::Device device_ = at::kCPU;
  at::ScalarType type_ = at::kFloat;
  at::Tensor embedding_, head_, final_norm_;
  at::Tensor cos_, sin_;  // (n_ctx, rotated values / 2)
  std::vector<Layer> layers_;
};

}  // namespace longspec::train
