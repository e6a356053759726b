// SPDX-License-Identifier: Apache-2.0
//
// The LongSpec draft block as LibTorch tensors: one pre-norm block of windowed self-attention,
// cross-attention on the target's last-layer keys and values, and an MLP, without a final norm. Tensor names
// and shapes are those of the published checkpoints. Not thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/feature_shard.h"

namespace longspec::train {

struct DraftShape {
  FeatureTarget target;
  int n_ff = 0;
  int window = 512;  // a query sees as many tokens before it, and itself
};

// Cosines and sines of some positions, (length, rotated values / 2) each.
struct Rotation {
  at::Tensor cos, sin;
};
// `positions` (length) int64. Angles in double precision; `magnitude` is the factor of the model's table, 1
// to move keys that carry it already.
Rotation MakeRotation(const FeatureTarget& target, const at::Tensor& positions, double magnitude);
// x (..., length, n_heads, head_dim), rotary halves split.
at::Tensor Rotate(const at::Tensor& x, const Rotation& rotation);

class DraftNet {
 public:
  // Linear weights N(0, 0.02), biases 0, norms 1, from the seed alone.
  DraftNet(DraftShape shape, uint64_t seed, at::Device device);

  const DraftShape& shape() const { return shape_; }
  // All 20 tensors in the order of their files. cross_attn.k_proj and .v_proj are never used, so they have no
  // gradient.
  const std::vector<std::pair<std::string, at::Tensor>>& tensors() const { return tensors_; }
  const at::Tensor& Find(const std::string& name) const;

  struct Input {
    at::Tensor embedded;   // (batch, length, n_embd): of the tokens
    at::Tensor positions;  // (length) int64
    at::Tensor keys,
        values;   // (batch, length, n_head_kv, head_dim): the target's, keys rotated to `positions`
    int lag = 1;  // the query of token t sees target keys 0 .. t - lag; none before token `lag`
  };
  // The residual stream that goes into the LM head, (batch, length, n_embd).
  at::Tensor Forward(const Input& input) const;
  // Multiply-adds of that, of a sequence of so many tokens and without the LM head.
  double ForwardMacs(int64_t length) const;

 private:
  void Add(const std::string& name, std::vector<int64_t> shape, double mean, double deviation, bool trained,
           const at::Generator& generator);
  at::Tensor Norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor Heads(const at::Tensor& x, const std::string& name, int n_heads) const;
  at::Tensor SelfAttention(const at::Tensor& x, const Rotation& rotation) const;
  at::Tensor CrossAttention(const at::Tensor& x, const Rotation& rotation, const Input& input) const;

  const DraftShape shape_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

}  // namespace longspec::train
