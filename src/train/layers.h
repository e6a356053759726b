// SPDX-License-Identifier: Apache-2.0
//
// What drafts are made of beside attention (attention.h), over packed sequences. Heads are (n, n_heads,
// head_dim). Free functions, from any thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "formats/feature_shard.h"
#include "train/attention.h"
#include "train/parameters.h"

namespace longspec::train {

// Cosines and sines of some positions, (n, rotated values / 2) each.
struct Rotation {
  at::Tensor cos, sin;
};
// `positions` (n) int64. Angles in double precision; `magnitude` is the factor of the model's table, 1 to
// move keys that carry it already.
Rotation MakeRotation(const FeatureTarget& target, const at::Tensor& positions, double magnitude);
// x (..., n, n_heads, head_dim), rotary halves split.
at::Tensor Rotate(const at::Tensor& x, const Rotation& rotation);

// Root mean square norm of the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// The four projections of attention, PREFIX.{q,k,v,o}_proj, with biases of the first three if `bias`.
struct AttentionShape {
  int64_t n_in = 0;  // of queries, keys and values; the output is n_embd wide
  bool bias = false;
  bool trained_keys = true;  // keys and values too
};
void AddAttention(Parameters* parameters, const FeatureTarget& target, const std::string& prefix,
                  const AttentionShape& shape);
// PREFIX.{gate,up,down}_proj of SwiGLU.
void AddMlp(Parameters* parameters, const FeatureTarget& target, const std::string& prefix, int n_ff);

// PREFIX.NAME_proj of x as heads.
at::Tensor ProjectHeads(const Parameters& parameters, const std::string& name, const at::Tensor& x,
                        const FeatureTarget& target);
at::Tensor Mlp(const Parameters& parameters, const std::string& prefix, const at::Tensor& x);

// A pre-norm block of the Llama kind, tensors PREFIX + input_layernorm, self_attn, post_attention_layernorm
// and mlp; every row sees all before it.
struct LlamaBlock {
  const Parameters& parameters;
  const FeatureTarget& target;
  std::string prefix;

  // The residual stream, (n, n_embd).
  at::Tensor Forward(const at::Tensor& x, const Rotation& rotation, const Ends& ends) const;
};
void AddLlamaBlock(Parameters* parameters, const FeatureTarget& target, const std::string& prefix, int n_ff,
                   bool bias);

// Multiply-adds of attention in which queries see so many keys in all.
double AttentionMacs(const FeatureTarget& target, double seen);

}  // namespace longspec::train
