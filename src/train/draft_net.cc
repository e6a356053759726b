// SPDX-License-Identifier: Apache-2.0
#include "train/draft_net.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"

namespace longspec::train {
namespace {

constexpr double kInitialDeviation = 0.02;

// q (batch, n_head, n, head_dim); k and v with the key-value heads, which are repeated.
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& mask) {
  const int64_t group = q.size(1) / k.size(1);
  const auto repeat = [&](const at::Tensor& x) { return group == 1 ? x : x.repeat_interleave(group, 1); };
  return at::scaled_dot_product_attention(q, repeat(k), repeat(v), mask, /*dropout_p=*/0.0,
                                          /*is_causal=*/!mask.has_value());
}

// Queries begin .. end - 1 over keys first .. end - 1: causal, `window` tokens back.
at::Tensor WindowMask(int64_t first, int64_t begin, int64_t end, int64_t window, at::Device device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor behind = at::arange(begin, end, options).unsqueeze(1) - at::arange(first, end, options);
  return behind.ge(0).logical_and(behind.le(window));
}

}  // namespace

Rotation MakeRotation(const FeatureTarget& target, const at::Tensor& positions, double magnitude) {
  const at::Tensor frequencies = at::tensor(target.rope_frequencies, at::kDouble);
  const at::Tensor angles = positions.to(at::kCPU, at::kDouble).unsqueeze(1) * frequencies;
  const auto float_on_device = [&](const at::Tensor& x) { return x.to(positions.device(), at::kFloat); };
  return {float_on_device(angles.cos() * magnitude), float_on_device(angles.sin() * magnitude)};
}

at::Tensor Rotate(const at::Tensor& x, const Rotation& rotation) {
  const int64_t half = rotation.cos.size(1), rest = x.size(-1) - 2 * half;
  const std::vector<at::Tensor> parts = x.split_with_sizes({half, half, rest}, -1);
  const at::Tensor cos = rotation.cos.unsqueeze(1), sin = rotation.sin.unsqueeze(1);
  return at::cat({parts[0] * cos - parts[1] * sin, parts[1] * cos + parts[0] * sin, parts[2]}, -1);
}

DraftNet::DraftNet(DraftShape shape, uint64_t seed, at::Device device) : shape_(std::move(shape)) {
  const FeatureTarget& t = shape_.target;
  const int64_t h = t.n_embd, q = int64_t{t.n_head} * t.head_dim, kv = int64_t{t.n_head_kv} * t.head_dim;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto linear = [&](const std::string& name, int64_t n_in, int64_t n_out, bool bias, bool trained) {
    Add(name + ".weight", {n_out, n_in}, 0.0, kInitialDeviation, trained, generator);
    if (bias) Add(name + ".bias", {n_out}, 0.0, 0.0, trained, generator);
  };
  for (const std::string attention : {"self_attn", "cross_attn"}) {
    const bool own_keys = attention == "self_attn";
    linear(attention + ".q_proj", h, q, true, true);
    linear(attention + ".k_proj", h, kv, true, own_keys);
    linear(attention + ".v_proj", h, kv, true, own_keys);
    linear(attention + ".o_proj", q, h, false, true);
  }
  linear("mlp.gate_proj", h, shape_.n_ff, false, true);
  linear("mlp.up_proj", h, shape_.n_ff, false, true);
  linear("mlp.down_proj", shape_.n_ff, h, false, true);
  for (const std::string norm : {"input", "post_self_attention", "post_cross_attention"}) {
    Add(norm + "_layernorm.weight", {h}, 1.0, 0.0, true, generator);
  }
  for (auto& [name, tensor] : tensors_) {
    const bool trained = tensor.requires_grad();
    tensor = tensor.detach().to(device).requires_grad_(trained);
  }
}

void DraftNet::Add(const std::string& name, std::vector<int64_t> shape, double mean, double deviation,
                   bool trained, const at::Generator& generator) {
  at::Tensor tensor = at::full(shape, mean, at::kFloat);
  if (deviation > 0.0) tensor.normal_(mean, deviation, generator);
  tensors_.emplace_back(name, tensor.requires_grad_(trained));
}

const at::Tensor& DraftNet::Find(const std::string& name) const {
  const auto it = std::ranges::find(tensors_, name, [](const auto& entry) { return entry.first; });
  LS_CHECK(it != tensors_.end());
  return it->second;
}

at::Tensor DraftNet::Norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor scale = at::rsqrt(x.square().mean(-1, true) + shape_.target.rms_eps);
  return x * scale * Find(name + "_layernorm.weight");
}

// (batch, length, n_heads, head_dim)
at::Tensor DraftNet::Heads(const at::Tensor& x, const std::string& name, int n_heads) const {
  const at::Tensor y = at::linear(x, Find(name + ".weight"), Find(name + ".bias"));
  return y.view({x.size(0), x.size(1), n_heads, shape_.target.head_dim});
}

at::Tensor DraftNet::SelfAttention(const at::Tensor& x, const Rotation& rotation) const {
  const FeatureTarget& t = shape_.target;
  const at::Tensor q = Rotate(Heads(x, "self_attn.q_proj", t.n_head), rotation).transpose(1, 2);
  const at::Tensor k = Rotate(Heads(x, "self_attn.k_proj", t.n_head_kv), rotation).transpose(1, 2);
  const at::Tensor v = Heads(x, "self_attn.v_proj", t.n_head_kv).transpose(1, 2);
  const int64_t n = x.size(1), window = shape_.window;
  if (n <= window + 1) return Attend(q, k, v, std::nullopt);
  // As many queries at a time as the window is long: memory is linear in the length.
  std::vector<at::Tensor> parts;
  const int64_t step = std::max<int64_t>(window, 64);
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step), first = std::max<int64_t>(0, begin - window);
    parts.push_back(Attend(q.slice(2, begin, end), k.slice(2, first, end), v.slice(2, first, end),
                           WindowMask(first, begin, end, window, x.device())));
  }
  return at::cat(parts, 2);
}

at::Tensor DraftNet::CrossAttention(const at::Tensor& x, const Rotation& rotation, const Input& input) const {
  const FeatureTarget& t = shape_.target;
  const int64_t n = x.size(1), lag = std::min<int64_t>(input.lag, n);
  const at::Tensor q = Rotate(Heads(x, "cross_attn.q_proj", t.n_head), rotation).transpose(1, 2);
  const at::Tensor nothing = at::zeros_like(q.slice(2, 0, lag));
  if (lag == n) return nothing;
  const at::Tensor seen = Attend(q.slice(2, lag), input.keys.transpose(1, 2).slice(2, 0, n - lag),
                                 input.values.transpose(1, 2).slice(2, 0, n - lag), std::nullopt);
  return at::cat({nothing, seen}, 2);
}

at::Tensor DraftNet::Forward(const Input& input) const {
  const Rotation rotation = MakeRotation(shape_.target, input.positions, shape_.target.rope_magnitude);
  const auto output = [&](const at::Tensor& attended, const std::string& name) {
    return at::linear(attended.transpose(1, 2).flatten(2), Find(name + ".o_proj.weight"));
  };
  at::Tensor x = input.embedded;
  x = x + output(SelfAttention(Norm(x, "input"), rotation), "self_attn");
  x = x + output(CrossAttention(Norm(x, "post_self_attention"), rotation, input), "cross_attn");
  const at::Tensor normed = Norm(x, "post_cross_attention");
  const at::Tensor gate = at::silu(at::linear(normed, Find("mlp.gate_proj.weight")));
  const at::Tensor up = at::linear(normed, Find("mlp.up_proj.weight"));
  return x + at::linear(gate * up, Find("mlp.down_proj.weight"));
}

double DraftNet::ForwardMacs(int64_t length) const {
  const auto n = static_cast<double>(length);
  double matrices = 0.0;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.requires_grad() && tensor.dim() == 2) matrices += static_cast<double>(tensor.numel());
  }
  const double width = static_cast<double>(shape_.target.n_head) * shape_.target.head_dim;
  const double windowed = std::min<double>(n, shape_.window + 1);
  const double seen = n * (n + 1) / 2 + windowed * (n - windowed / 2);  // cross and self, of all queries
  return n * matrices + 2 * width * seen;
}

}  // namespace longspec::train
