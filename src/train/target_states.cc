// SPDX-License-Identifier: Apache-2.0
#include "train/target_states.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/size.h"
#include "base/status_macros.h"
#include "network/model_tensors.h"
#include "train/files.h"
#include "train/layers.h"
#include "train/places.h"
#include "train/target_weights.h"

namespace longspec::train {
// Sequences one behind the other, each from position 0 on.
struct TargetStates::Packed {
  Packed(const Ends& ends, at::Device device) : places(ends, device) {
    std::vector<int64_t> at_position;
    int64_t begin = 0;
    for (const int64_t end : ends) {
      for (int64_t i = 0; i < end - begin; ++i) at_position.push_back(i);
      begin = end;
    }
    positions = at::tensor(at_position, at::kLong).to(device);
  }

  // x (rows, heads, head_dim) as (n, heads, length, head_dim).
  at::Tensor Beside(const at::Tensor& x) const { return places.Beside(x).transpose(1, 2); }
  // And back, (rows, heads * head_dim).
  at::Tensor Behind(const at::Tensor& x) const { return places.Behind(x.transpose(1, 2)).flatten(1); }

  Places places;
  at::Tensor positions;  // (rows) int64
};

// Keys and values of all layers, (n_sequences, n_head_kv, length, head_dim) each.
struct TargetStates::Cache {
  std::vector<at::Tensor> keys, values;
};

Result<TargetStates> TargetStates::Load(const GgufFile& file, const FeatureTarget& target, at::Device device,
                                        at::ScalarType type) {
  TargetStates states;
  states.target_ = target;
  states.device_ = device;
  states.type_ = type;
  LS_ASSIGN(const FrozenParts frozen, LoadFrozenParts(file, target));
  states.embedding_ = frozen.embedding.to(device);
  states.head_ = frozen.head.to(device, type);
  const auto norm = [&](const std::string& name, int width) -> Result<at::Tensor> {
    LS_ASSIGN(const at::Tensor rows, LoadRows(file, name, 1, width));
    return rows.flatten().to(device);
  };
  LS_ASSIGN(states.final_norm_, norm(TensorName(TensorRole::kOutputNorm), target.n_embd));
  const Rotation rotation =
      MakeRotation(target, at::arange(int64_t{target.n_ctx}, at::kLong), target.rope_magnitude);
  states.cos_ = rotation.cos.to(device);
  states.sin_ = rotation.sin.to(device);
  LS_ASSIGN(const int n_layer, CountLayers(file));
  const int64_t q = int64_t{target.n_head} * target.head_dim,
                kv = int64_t{target.n_head_kv} * target.head_dim;
  for (int i = 0; i < n_layer; ++i) {
    const auto name = [i](TensorRole role) { return TensorName(role, i); };
    Layer layer;
    LS_ASSIGN(layer.attention_norm, norm(name(TensorRole::kAttentionNorm), target.n_embd));
    LS_ASSIGN(layer.mlp_norm, norm(name(TensorRole::kMlpNorm), target.n_embd));
    if (file.FindTensor(name(TensorRole::kQueryNorm)) != nullptr) {
      LS_ASSIGN(layer.query_norm, norm(name(TensorRole::kQueryNorm), target.head_dim));
      LS_ASSIGN(layer.key_norm, norm(name(TensorRole::kKeyNorm), target.head_dim));
    }
    LS_ASSIGN(const at::Tensor queries, LoadHeads(file, target, name(TensorRole::kQuery), q));
    LS_ASSIGN(const at::Tensor keys, LoadHeads(file, target, name(TensorRole::kKey), kv));
    LS_ASSIGN(const at::Tensor values, LoadRows(file, name(TensorRole::kValue), kv, target.n_embd));
    layer.qkv = at::cat({queries, keys, values}, 0).to(device, type);
    if (file.FindTensor(name(TensorRole::kQueryBias)) != nullptr) {
      LS_ASSIGN(const at::Tensor q_bias, LoadHeadBias(file, target, name(TensorRole::kQueryBias), q));
      LS_ASSIGN(const at::Tensor k_bias, LoadHeadBias(file, target, name(TensorRole::kKeyBias), kv));
      LS_ASSIGN(const at::Tensor v_bias, LoadRows(file, name(TensorRole::kValueBias), 1, kv));
      layer.qkv_bias = at::cat({q_bias, k_bias, v_bias.flatten()}, 0).to(device, type);
    }
    LS_ASSIGN(const at::Tensor output, LoadRows(file, name(TensorRole::kAttentionOutput), target.n_embd, q));
    layer.output = output.to(device, type);
    LS_ASSIGN(const at::Tensor gate, LoadRows(file, name(TensorRole::kGate), target.n_ff, target.n_embd));
    LS_ASSIGN(const at::Tensor up, LoadRows(file, name(TensorRole::kUp), target.n_ff, target.n_embd));
    layer.gate_up = at::cat({gate, up}, 0).to(device, type);
    LS_ASSIGN(const at::Tensor down, LoadRows(file, name(TensorRole::kDown), target.n_embd, target.n_ff));
    layer.down = down.to(device, type);
    states.layers_.push_back(std::move(layer));
  }
  return states;
}

at::Tensor TargetStates::Norm(const at::Tensor& x, const at::Tensor& weight) const {
  return at::rms_norm(x, {target_.n_embd}, weight, target_.rms_eps);
}

TargetStates::Projected TargetStates::Project(const Layer& layer, const at::Tensor& x,
                                              const at::Tensor& positions) const {
  std::optional<at::Tensor> bias;
  if (layer.qkv_bias.defined()) bias = layer.qkv_bias;
  const at::Tensor heads = at::linear(Norm(x, layer.attention_norm).to(type_), layer.qkv, bias)
                               .view({x.size(0), -1, target_.head_dim});
  const int64_t n_rotated = int64_t{target_.n_head} + target_.n_head_kv;
  const Rotation rotation = {cos_.index_select(0, positions).to(type_),
                             sin_.index_select(0, positions).to(type_)};
  at::Tensor queries_keys = heads.narrow(1, 0, n_rotated);
  if (layer.query_norm.defined()) {
    const at::Tensor wide = queries_keys.to(at::kFloat);
    const auto normed = [&](int64_t first, int64_t n, const at::Tensor& weight) {
      return at::rms_norm(wide.narrow(1, first, n), {target_.head_dim}, weight, target_.rms_eps);
    };
    queries_keys = at::cat({normed(0, target_.n_head, layer.query_norm),
                            normed(target_.n_head, target_.n_head_kv, layer.key_norm)},
                           1)
                       .to(type_);
  }
  const at::Tensor rotated = Rotate(queries_keys, rotation);
  return {rotated.narrow(1, 0, target_.n_head), rotated.narrow(1, target_.n_head, target_.n_head_kv),
          heads.narrow(1, n_rotated, target_.n_head_kv)};
}

at::Tensor TargetStates::Finish(const Layer& layer, const at::Tensor& x, const at::Tensor& mixed) const {
  const at::Tensor y = x + at::linear(mixed, layer.output);
  const std::vector<at::Tensor> parts =
      at::linear(Norm(y, layer.mlp_norm).to(type_), layer.gate_up).chunk(2, 1);
  return y + at::linear(at::silu(parts[0]) * parts[1], layer.down);
}

at::Tensor TargetStates::Prefill(const at::Tensor& tokens, const Packed& packed, const Visit& visit) const {
  const int64_t group = target_.n_head / target_.n_head_kv;
  at::Tensor x = embedding_.index_select(0, tokens);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Projected projected = Project(layers_[i], x, packed.positions);
    const at::Tensor mixed = at::scaled_dot_product_attention(
        packed.Beside(projected.q), packed.Beside(projected.k).repeat_interleave(group, 1),
        packed.Beside(projected.v).repeat_interleave(group, 1), {}, 0.0, /*is_causal=*/true);
    x = Finish(layers_[i], x, packed.Behind(mixed));
    visit(static_cast<int>(i), projected, x);
  }
  return Norm(x, final_norm_);
}

void TargetStates::Compute(const ShardNeeds& needs, Batch* batch) const {
  const at::NoGradGuard no_grad;
  const int last = static_cast<int>(layers_.size()) - 1;
  const at::Tensor final_hidden = Prefill(batch->tokens.to(device_), Packed(batch->ends, device_),
                                          [&](int layer, const Projected& projected, const at::Tensor& x) {
                                            if (std::ranges::count(needs.layers, layer) > 0)
                                              batch->hidden[layer] = x;
                                            if (!needs.keys_values || layer != last) return;
                                            batch->keys = projected.k.to(at::kFloat);
                                            batch->values = projected.v.to(at::kFloat);
                                          });
  if (needs.final_hidden) batch->final_hidden = final_hidden;
}

// Draws by the exponential race: the smallest of -log(u) / p is token i with probability p_i.
at::Tensor TargetStates::Choose(const at::Tensor& x, const at::Tensor& temperatures) const {
  const at::Tensor logits = at::linear(Norm(x, final_norm_).to(type_), head_).to(at::kFloat);
  const at::Tensor noise = at::empty_like(logits).exponential_().log_();
  return (logits - noise * temperatures.unsqueeze(1)).argmax(1);
}

std::vector<std::vector<int32_t>> TargetStates::Write(std::span<const std::vector<int32_t>> beginnings,
                                                      int64_t first_index, const WriteOptions& options,
                                                      const std::function<bool(int)>& on_step) const {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> lengths;
  Ends ends_of_texts;
  std::vector<float> temperatures;
  for (size_t i = 0; i < beginnings.size(); ++i) {
    lengths.push_back(std::ssize(beginnings[i]));
    ends_of_texts.push_back(lengths.back() + (i > 0 ? ends_of_texts.back() : 0));
    temperatures.push_back(options.temperatures[(Z(first_index) + i) % options.temperatures.size()]);
  }
  const Packed packed(ends_of_texts, device_);
  const int64_t n = packed.places.n(), length = packed.places.length(),
                room = WholePlaces(length + options.max_tokens);
  const int64_t group = target_.n_head / target_.n_head_kv;
  std::vector<int64_t> tokens;
  for (const std::vector<int32_t>& text : beginnings) tokens.insert(tokens.end(), text.begin(), text.end());
  Cache cache;
  at::Tensor last;
  const auto in_cache = [&](const at::Tensor& rows) {
    at::Tensor all = at::zeros({n, target_.n_head_kv, room, target_.head_dim}, rows.options());
    all.slice(2, 0, length).copy_(packed.Beside(rows));
    return all;
  };
  at::Tensor at_position = at::tensor(lengths, at::kLong).to(device_);  // of the next token
  Prefill(at::tensor(tokens, at::kLong).to(device_), packed,
          [&](int, const Projected& projected, const at::Tensor& x) {
            cache.keys.push_back(in_cache(projected.k));
            cache.values.push_back(in_cache(projected.v));
            last = x.index_select(0, at_position.cumsum(0) - 1);
          });
  const at::Tensor temperature = at::tensor(temperatures).to(device_);
  at::Tensor next = Choose(last, temperature);
  std::vector<at::Tensor> written = {next};
  const at::Tensor sequence = at::arange(n, at_position.options());
  const at::Tensor key = at::arange(room, at_position.options());
  const at::Tensor ends =
      at::tensor(std::vector<int64_t>(options.ends.begin(), options.ends.end()), at::kLong);
  const at::Tensor ends_there = ends.to(device_);
  at::Tensor ended = at::isin(next, ends_there);
  constexpr int kLook = 16;  // to look whether all have ended waits for the device
  for (int step = 1; step < options.max_tokens; ++step) {
    if (!on_step(step)) return {};
    if (step % kLook == 0 && ended.all().item<bool>()) break;
    at::Tensor x = embedding_.index_select(0, next);
    // What lies behind a sequence's newest token is not there yet.
    const int64_t seen = WholePlaces(length + step);
    const at::Tensor mask =
        at::zeros({n, 1, 1, seen}, at::TensorOptions(type_).device(device_))
            .masked_fill_(key.slice(0, 0, seen).gt(at_position.unsqueeze(1)).view({n, 1, 1, seen}),
                          -std::numeric_limits<double>::infinity())
            .expand({n, target_.n_head_kv, group, seen});
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Projected projected = Project(layers_[i], x, at_position);
      cache.keys[i].transpose(1, 2).index_put_({sequence, at_position}, projected.k);
      cache.values[i].transpose(1, 2).index_put_({sequence, at_position}, projected.v);
      // The queries of a group stand beside each other as if they were of one head.
      const at::Tensor mixed = at::scaled_dot_product_attention(
          projected.q.reshape({n, target_.n_head_kv, group, target_.head_dim}),
          cache.keys[i].slice(2, 0, seen), cache.values[i].slice(2, 0, seen), mask);
      x = Finish(layers_[i], x, mixed.reshape({n, -1}));
    }
    next = Choose(x, temperature);
    ended.logical_or_(at::isin(next, ends_there));
    written.push_back(next);
    at_position = at_position + 1;
  }
  const at::Tensor all = at::stack(written, 1).to(at::kCPU, at::kInt).contiguous();
  std::vector<std::vector<int32_t>> texts(beginnings.begin(), beginnings.end());
  for (size_t i = 0; i < texts.size(); ++i) {
    const int32_t* const tokens_of = all.const_data_ptr<int32_t>() + i * Z(all.size(1));
    for (int64_t j = 0; j < all.size(1); ++j) {
      texts[i].push_back(tokens_of[j]);
      if (std::ranges::count(options.ends, tokens_of[j]) > 0) break;
    }
  }
  return texts;
}

}  // namespace longspec::train
