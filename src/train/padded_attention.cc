// SPDX-License-Identifier: Apache-2.0
//
// Attention of a whole batch in one call, as a GPU wants it: sequences beside each other, filled up to the
// longest.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/size.h"
#include "train/attention.h"
#include "train/places.h"

namespace longspec::train {
namespace {

bool IsCausal(const Visibility& sees) {
  if (sees.window >= 0 || sees.query_ends != sees.key_ends) return false;
  size_t row = 0;
  int64_t begin = 0;
  for (const int64_t end : sees.query_ends) {
    for (int64_t i = 0; i < end - begin; ++i) {
      if (sees.seen[row++] != i + 1) return false;
    }
    begin = end;
  }
  return true;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// LibTorch's causal flash attention, and how its backward pass is called.
struct Flash {
  at::Tensor output, log_sum;  // (n, heads, length, head_dim) in the type of q; (n, heads, length) f32
  at::Tensor cum_q, cum_k, rng_state, rng_unused;
  int64_t max_q = 0, max_k = 0;
};

Flash FlashForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (q.device().is_cpu()) {
    auto [output, log_sum] =
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, /*is_causal=*/true);
    return {.output = output, .log_sum = log_sum};
  }
  const auto all = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, /*is_causal=*/true, false);
  return {.output = std::get<0>(all),
          .log_sum = std::get<1>(all),
          .cum_q = std::get<2>(all),
          .cum_k = std::get<3>(all),
          .rng_state = std::get<6>(all),
          .rng_unused = std::get<7>(all),
          .max_q = std::get<4>(all).expect_int(),
          .max_k = std::get<5>(all).expect_int()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(const at::Tensor& gradient, const at::Tensor& q,
                                                             const at::Tensor& k, const at::Tensor& v,
                                                             const Flash& flash) {
  if (q.device().is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, v, flash.output,
                                                                    flash.log_sum, 0.0, /*is_causal=*/true);
  }
  return at::_scaled_dot_product_flash_attention_backward(
      gradient, q, k, v, flash.output, flash.log_sum, flash.cum_q, flash.cum_k, flash.max_q, flash.max_k, 0.0,
      /*is_causal=*/true, flash.rng_state, flash.rng_unused);
}

// Causal attention beside which query i sees key i of some steps of its own. Keys of a step are too few for a
// product: what they add is computed by itself, and both parts are weighed by the sums of their
// exponentials. Flash attention's backward pass needs no more than the whole output and the logarithm of the
// whole sum to find its own part's gradient.
class ChainAttention : public torch::autograd::Function<ChainAttention> {
 public:
  // q (n, n_head, length, head_dim); k, v with the key-value heads; own (steps, n, n_head_kv, length,
  // head_dim). As q.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& own_k, const at::Tensor& own_v) {
    const int64_t group = q.size(1) / k.size(1);
    const at::Tensor all_k = k.repeat_interleave(group, 1), all_v = v.repeat_interleave(group, 1);
    Flash flash = FlashForward(q, all_k, all_v);
    // (steps, n, n_head_kv, group, length)
    const at::Tensor scores = (Grouped(q, group).to(at::kFloat) * Ungrouped(own_k)).sum(-1) * Scale(q);
    const at::Tensor first = Grouped(flash.log_sum.unsqueeze(3), group).squeeze(-1);
    const at::Tensor total = at::cat({first.unsqueeze(0), scores}, 0).logsumexp(0);
    const at::Tensor shares = (scores - total).exp();
    const at::Tensor output =
        Grouped(flash.output, group).to(at::kFloat) * (first - total).exp().unsqueeze(-1) +
        (shares.unsqueeze(-1) * Ungrouped(own_v)).sum(0);
    flash.output = output.to(q.scalar_type()).view_as(q);
    flash.log_sum = total.flatten(1, 2).contiguous();
    context->save_for_backward({q, all_k, all_v, own_k, own_v, shares, flash.output, flash.log_sum,
                                flash.cum_q, flash.cum_k, flash.rng_state, flash.rng_unused});
    context->saved_data["max_q"] = flash.max_q;
    context->saved_data["max_k"] = flash.max_k;
    return flash.output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &own_k = saved[3], &own_v = saved[4], &shares = saved[5];
    const Flash flash = {.output = saved[6],
                         .log_sum = saved[7],
                         .cum_q = saved[8],
                         .cum_k = saved[9],
                         .rng_state = saved[10],
                         .rng_unused = saved[11],
                         .max_q = context->saved_data["max_q"].toInt(),
                         .max_k = context->saved_data["max_k"].toInt()};
    const at::Tensor gradient = gradients[0].contiguous();
    auto [of_q, of_all_k, of_all_v] = FlashBackward(gradient, q, saved[1], saved[2], flash);
    const int64_t group = q.size(1) / own_k.size(2);
    const at::Tensor g = Grouped(gradient, group).to(at::kFloat), queries = Grouped(q, group).to(at::kFloat);
    const at::Tensor mean = (g * Grouped(flash.output, group).to(at::kFloat)).sum(-1);
    const at::Tensor of_scores = shares * ((g * Ungrouped(own_v)).sum(-1) - mean) * Scale(q);
    const at::Tensor of_own_v = (shares.unsqueeze(-1) * g).sum(3).to(own_v.scalar_type());
    const at::Tensor of_own_k = (of_scores.unsqueeze(-1) * queries).sum(3).to(own_k.scalar_type());
    of_q = of_q + (of_scores.unsqueeze(-1) * Ungrouped(own_k)).sum(0).view_as(q).to(q.scalar_type());
    const auto of_group = [&](const at::Tensor& x) { return Grouped(x, group).sum(2); };
    return {of_q, of_group(of_all_k), of_group(of_all_v), of_own_k, of_own_v};
  }

 private:
  static double Scale(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(3))); }
  // (n, n_head, ...) as (n, n_head_kv, group, ...).
  static at::Tensor Grouped(const at::Tensor& x, int64_t group) {
    return x.reshape({x.size(0), -1, group, x.size(2), x.size(3)});
  }
  // (steps, n, n_head_kv, length, head_dim) as (steps, n, n_head_kv, 1, length, head_dim), f32.
  static at::Tensor Ungrouped(const at::Tensor& own) { return own.unsqueeze(3).to(at::kFloat); }
};

}  // namespace

at::Tensor PaddedAttention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own,
                           Precision precision) {
  const at::Device device = heads.q.device();
  const at::ScalarType type = precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  const Places queries(sees.query_ends, device), keys(sees.key_ends, device);
  if (queries.length() == 0) return heads.q.flatten(1);
  const int64_t group = heads.q.size(1) / heads.k.size(1);
  const bool causal = IsCausal(sees);
  // (n_sequences, heads, length, head_dim)
  const auto beside = [&](const Places& places, const at::Tensor& x, int64_t repeats) {
    const at::Tensor table = places.Beside(x.to(type)).transpose(1, 2);
    return repeats == 1 ? table : table.repeat_interleave(repeats, 1);
  };
  const at::Tensor q = beside(queries, heads.q, 1);
  if (causal && !own.empty() && (device.is_cpu() || type == at::kBFloat16)) {
    std::vector<at::Tensor> own_k, own_v;
    for (const OwnStep& step : own) {
      own_k.push_back(beside(queries, step.keys, 1));
      own_v.push_back(beside(queries, step.values, 1));
    }
    const at::Tensor mixed = ChainAttention::apply(q, beside(keys, heads.k, 1), beside(keys, heads.v, 1),
                                                   at::stack(own_k), at::stack(own_v));
    return queries.Behind(mixed.transpose(1, 2)).flatten(1).to(at::kFloat);
  }
  std::vector<at::Tensor> k = {beside(keys, heads.k, group)}, v = {beside(keys, heads.v, group)};
  for (const OwnStep& step : own) {
    k.push_back(beside(queries, step.keys, group));
    v.push_back(beside(queries, step.values, group));
  }
  std::optional<at::Tensor> mask;
  at::Tensor blind;  // queries that see nothing: they are shown a key, and what comes of it is dropped
  if (!own.empty() || !causal) {
    const auto index = at::TensorOptions(at::kLong).device(device);
    const at::Tensor seen =
        queries.Beside(at::tensor(sees.seen, at::kLong).to(device)).unsqueeze(2);  // (n, length, 1)
    const at::Tensor key = at::arange(keys.length(), index);
    at::Tensor visible = key.lt(seen);
    if (sees.window >= 0) visible = visible.logical_and(key.ge(seen - 1 - sees.window));
    if (own.empty()) {
      blind = seen.le(0);
      visible = visible.logical_or(blind.logical_and(key.eq(0)));
    }
    std::vector<at::Tensor> all = {visible};
    const at::Tensor itself = at::eye(queries.length(), at::TensorOptions(at::kBool).device(device))
                                  .expand({queries.n(), queries.length(), queries.length()});
    for (size_t i = 0; i < own.size(); ++i) all.push_back(itself);
    const at::Tensor shown = at::cat(all, 2);
    mask = at::zeros(shown.sizes(), q.options())
               .masked_fill_(shown.logical_not(), -std::numeric_limits<double>::infinity())
               .unsqueeze(1)
               .expand({queries.n(), q.size(1), shown.size(1), shown.size(2)});
  }
  const at::Tensor mixed =
      at::scaled_dot_product_attention(q, at::cat(k, 2), at::cat(v, 2), mask, 0.0, !mask.has_value());
  at::Tensor rows = mixed.transpose(1, 2);
  if (blind.defined()) rows = rows.masked_fill(blind.unsqueeze(3), 0.0);
  return queries.Behind(rows).flatten(1).to(at::kFloat);
}

}  // namespace longspec::train
