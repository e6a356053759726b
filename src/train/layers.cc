// SPDX-License-Identifier: Apache-2.0
#include "train/layers.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/size.h"

namespace longspec::train {
namespace {

constexpr int64_t kQueriesAtOnce = 128;  // of attention whose scores are written out

// q (n, n_head, head_dim), k and v with the key-value heads, which are repeated. The same shape as q.
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& mask) {
  const int64_t group = q.size(1) / k.size(1);
  const auto heads = [&](const at::Tensor& x, int64_t repeats) {
    const at::Tensor first = x.transpose(0, 1).unsqueeze(0);
    return repeats == 1 ? first : first.repeat_interleave(repeats, 1);
  };
  return at::scaled_dot_product_attention(heads(q, 1), heads(k, group), heads(v, group), mask,
                                          /*dropout_p=*/0.0, /*is_causal=*/!mask.has_value())
      .squeeze(0)
      .transpose(0, 1);
}

// Queries begin .. end - 1 over keys first .. end - 1: causal, `window` tokens back.
at::Tensor WindowMask(int64_t first, int64_t begin, int64_t end, int64_t window, at::Device device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor behind = at::arange(begin, end, options).unsqueeze(1) - at::arange(first, end, options);
  return behind.ge(0).logical_and(behind.le(window));
}

// Calls visit(begin, end) for each sequence that has rows.
template <typename Visit>
void ForEachSequence(const Ends& ends, const Visit& visit) {
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (end > begin) visit(begin, end);
    begin = end;
  }
}

void CausalParts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window,
                 std::vector<at::Tensor>* parts) {
  const int64_t n = q.size(0);
  if (window < 0 || n <= window + 1) {
    parts->push_back(Attend(q, k, v, std::nullopt));
    return;
  }
  const int64_t step = std::max<int64_t>(window, 64);
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step), first = std::max<int64_t>(0, begin - window);
    parts->push_back(Attend(q.slice(0, begin, end), k.slice(0, first, end), v.slice(0, first, end),
                            WindowMask(first, begin, end, window, q.device())));
  }
}

// Queries of one sequence, few enough that their scores can be written out. Scores are (n_head_kv, queries,
// queries of a group, keys).
at::Tensor SeenPart(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    std::span<const int64_t> seen, std::span<const OwnStep> own, int64_t begin) {
  const int64_t m = q.size(0), n_kv = k.size(1), dim = q.size(2), group = q.size(1) / n_kv;
  const int64_t n = *std::ranges::max_element(seen);
  if (n == 0 && own.empty()) return at::zeros_like(q);
  const at::Tensor scaled = (q * (1.0 / std::sqrt(static_cast<double>(dim))))
                                .view({m, n_kv, group, dim})
                                .permute({1, 0, 2, 3})
                                .contiguous();
  const at::Tensor count = at::tensor(seen, at::kLong).to(q.device()).view({m, 1, 1});
  const at::Tensor hidden =
      at::arange(n, at::TensorOptions(at::kLong).device(q.device())).view({1, 1, n}).ge(count);
  std::vector<at::Tensor> scores = {
      at::matmul(scaled.view({n_kv, m * group, dim}), k.slice(0, 0, n).permute({1, 2, 0}))
          .view({n_kv, m, group, n})
          .masked_fill(hidden, -1e30)};
  const auto own_rows = [&](const at::Tensor& x) {  // (n_kv, m, 1, dim)
    return x.slice(0, begin, begin + m).permute({1, 0, 2}).unsqueeze(2);
  };
  for (const OwnStep& step : own) scores.push_back((scaled * own_rows(step.keys)).sum(-1, true));
  const at::Tensor shares = at::cat(scores, -1).softmax(-1);
  at::Tensor sum =
      at::matmul(shares.slice(-1, 0, n).reshape({n_kv, m * group, n}), v.slice(0, 0, n).permute({1, 0, 2}))
          .view({n_kv, m, group, dim});
  for (size_t i = 0; i < own.size(); ++i) {
    const int64_t column = n + static_cast<int64_t>(i);
    sum = sum + shares.slice(-1, column, column + 1) * own_rows(own[i].values);
  }
  // With no key at all the shares are those of hidden ones.
  if (own.empty()) sum = sum * count.gt(0);
  return sum.permute({1, 0, 2, 3}).reshape({m, n_kv * group, dim});
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

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Ends& ends,
                           int64_t window) {
  std::vector<at::Tensor> parts;
  ForEachSequence(ends, [&](int64_t begin, int64_t end) {
    CausalParts(q.slice(0, begin, end), k.slice(0, begin, end), v.slice(0, begin, end), window, &parts);
  });
  return at::cat(parts, 0).flatten(1);
}

at::Tensor LaggedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Ends& ends,
                           int64_t lag) {
  std::vector<at::Tensor> parts;
  ForEachSequence(ends, [&](int64_t begin, int64_t end) {
    const int64_t blind = std::min(lag, end - begin), last = end - blind;
    parts.push_back(at::zeros_like(q.slice(0, begin, begin + blind)));
    if (last == begin) return;
    parts.push_back(Attend(q.slice(0, begin + blind, end), k.slice(0, begin, last), v.slice(0, begin, last),
                           std::nullopt));
  });
  return at::cat(parts, 0).flatten(1);
}

at::Tensor SeenAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const Ends& query_ends, const Ends& key_ends, std::span<const int64_t> seen,
                         std::span<const OwnStep> own) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0, first_key = 0;
  for (size_t s = 0; s < query_ends.size(); ++s) {
    const at::Tensor keys = k.slice(0, first_key, key_ends[s]), values = v.slice(0, first_key, key_ends[s]);
    for (; begin < query_ends[s]; begin += parts.back().size(0)) {
      const int64_t end = std::min(query_ends[s], begin + kQueriesAtOnce);
      parts.push_back(
          SeenPart(q.slice(0, begin, end), keys, values, seen.subspan(Z(begin), Z(end - begin)), own, begin));
    }
    first_key = key_ends[s];
  }
  return at::cat(parts, 0).flatten(1);
}

at::Tensor LlamaBlock::Forward(const at::Tensor& x, const Rotation& rotation, const Ends& ends) const {
  const auto norm = [&](const at::Tensor& y, const std::string& name) {
    return RmsNorm(y, parameters.Find(prefix + name + "_layernorm.weight"), target.rms_eps);
  };
  const at::Tensor input = norm(x, "input");
  const at::Tensor q = Rotate(ProjectHeads(parameters, prefix + "self_attn.q_proj", input, target), rotation);
  const at::Tensor k = Rotate(ProjectHeads(parameters, prefix + "self_attn.k_proj", input, target), rotation);
  const at::Tensor v = ProjectHeads(parameters, prefix + "self_attn.v_proj", input, target);
  const at::Tensor y = x + parameters.Product(prefix + "self_attn.o_proj", CausalAttention(q, k, v, ends));
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
