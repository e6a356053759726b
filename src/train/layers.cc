// SPDX-License-Identifier: Apache-2.0
#include "train/layers.h"

#include <vector>

namespace longspec::train {

Rotation MakeRotation(const FeatureTarget& target, const at::Tensor& positions, double magnitude) {
  const at::Tensor frequencies = at::tensor(target.rope_frequencies, at::kDouble).to(positions.device());
  const at::Tensor angles = positions.to(at::kDouble).unsqueeze(1) * frequencies;
  return {(angles.cos() * magnitude).to(at::kFloat), (angles.sin() * magnitude).to(at::kFloat)};
}

at::Tensor Rotate(const at::Tensor& x, const Rotation& rotation) {
  const int64_t half = rotation.cos.size(1), rest = x.size(-1) - 2 * half;
  const std::vector<at::Tensor> parts = x.split_with_sizes({half, half, rest}, -1);
  const at::Tensor cos = rotation.cos.unsqueeze(1), sin = rotation.sin.unsqueeze(1);
  return at::cat({parts[0] * cos - parts[1] * sin, parts[1] * cos + parts[0] * sin, parts[2]}, -1);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
}

void AddAttention(Parameters* parameters, const FeatureTarget& t, const std::string& prefix,
                  const AttentionShape& shape) {
  const int64_t q = int64_t{t.n_head} * t.head_dim, kv = int64_t{t.n_head_kv} * t.head_dim;
  const auto add = [&](const std::string& name, int64_t n_out, bool trained) {
    parameters->Matrix(prefix + name, n_out, shape.n_in, trained);
    if (shape.bias) parameters->Vector(prefix + name + ".bias", n_out, 0.0, trained);
  };
  add(".q_proj", q, true);
  add(".k_proj", kv, shape.trained_keys);
  add(".v_proj", kv, shape.trained_keys);
  parameters->Matrix(prefix + ".o_proj", t.n_embd, q);
}

void AddMlp(Parameters* parameters, const FeatureTarget& target, const std::string& prefix, int n_ff) {
  parameters->Matrix(prefix + ".gate_proj", n_ff, target.n_embd);
  parameters->Matrix(prefix + ".up_proj", n_ff, target.n_embd);
  parameters->Matrix(prefix + ".down_proj", target.n_embd, n_ff);
}

at::Tensor ProjectHeads(const Parameters& parameters, const std::string& name, const at::Tensor& x,
                        const FeatureTarget& target) {
  return parameters.Product(name, x).view({x.size(0), -1, target.head_dim});
}

at::Tensor Mlp(const Parameters& parameters, const std::string& prefix, const at::Tensor& x) {
  const at::Tensor gate = at::silu(parameters.Product(prefix + ".gate_proj", x));
  return parameters.Product(prefix + ".down_proj", gate * parameters.Product(prefix + ".up_proj", x));
}

at::Tensor LlamaBlock::Forward(const at::Tensor& x, const Rotation& rotation, const Ends& ends) const {
  const auto norm = [&](const at::Tensor& y, const std::string& name) {
    return RmsNorm(y, parameters.Find(prefix + name + "_layernorm.weight"), target.rms_eps);
  };
  const at::Tensor input = norm(x, "input");
  const at::Tensor q = Rotate(ProjectHeads(parameters, prefix + "self_attn.q_proj", input, target), rotation);
  const at::Tensor k = Rotate(ProjectHeads(parameters, prefix + "self_attn.k_proj", input, target), rotation);
  const at::Tensor v = ProjectHeads(parameters, prefix + "self_attn.v_proj", input, target);
  const at::Tensor y = x + parameters.Product(prefix + "self_attn.o_proj",
                                              CausalAttention({q, k, v}, ends, parameters.precision()));
  return y + Mlp(parameters, prefix + "mlp", norm(y, "post_attention"));
}

void AddLlamaBlock(Parameters* parameters, const FeatureTarget& target, const std::string& prefix, int n_ff,
                   bool bias) {
  parameters->Vector(prefix + "input_layernorm.weight", target.n_embd, 1.0);
  AddAttention(parameters, target, prefix + "self_attn", {.n_in = target.n_embd, .bias = bias});
  parameters->Vector(prefix + "post_attention_layernorm.weight", target.n_embd, 1.0);
  AddMlp(parameters, target, prefix + "mlp", n_ff);
}

double AttentionMacs(const FeatureTarget& target, double seen) {
  return 2.0 * static_cast<double>(target.n_head) * target.head_dim * seen;
}

}  // namespace longspec::train
