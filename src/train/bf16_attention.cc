// SPDX-License-Identifier: Apache-2.0
//
// Attention with products in bf16, a block of queries at a time over the keys that some of them see. Scores
// are computed again for the gradient, so that memory does not grow with the square of a sequence.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/size.h"
#include "train/attention.h"
#include "train/bf16_product.h"
#include "train/row_kernels.h"

namespace longspec::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBlock = 128;  // queries; a multiple of kRowStep

// Rows begin .. end - 1 of x (n, heads, dim) as bf16, (n_kv, FullRows(rows) * heads / n_kv, dim): the heads
// of a group stand side by side.
at::Tensor ByGroup(const at::Tensor& x, int64_t begin, int64_t end, int64_t n_kv) {
  const int64_t group = x.size(1) / n_kv, full = FullRows(end - begin), dim = x.size(2);
  at::Tensor out = at::empty({n_kv, full, group, dim}, x.options().dtype(at::kBFloat16));
  out.slice(1, 0, end - begin)
      .copy_(x.slice(0, begin, end).view({end - begin, n_kv, group, dim}).transpose(0, 1));
  out.slice(1, end - begin, full).zero_();
  return out.view({n_kv, full * group, dim});
}

// The other way: what ByGroup made of rows begin .. end - 1, added to them.
void AddByGroup(const at::Tensor& grouped, int64_t begin, int64_t end, const at::Tensor& x) {
  const int64_t n_kv = grouped.size(0), group = x.size(1) / n_kv, dim = x.size(2);
  x.slice(0, begin, end)
      .view({end - begin, n_kv, group, dim})
      .add_(grouped.view({n_kv, -1, group, dim}).slice(1, 0, end - begin).transpose(0, 1));
}

// Of some queries: rows of the results of ByGroup, and the keys that some of them see, counted in the
// sequence, from a multiple of kRowStep to another.
struct Block {
  int64_t begin = 0, end = 0;  // queries
  int64_t first_key = 0, end_key = 0;
};

// The first of the `seen` first keys that a query sees.
int64_t FirstSeen(int64_t seen, int64_t window) {
  return window < 0 ? 0 : std::max<int64_t>(0, seen - 1 - window);
}

at::BFloat16* RowOf(const at::Tensor& scores, int64_t row) {
  return scores.mutable_data_ptr<at::BFloat16>() + row * scores.size(2);
}

// A row of a block's scores, with the keys that its query sees.
SeenScores SeenRow(const at::Tensor& scores, int64_t row, const Block& block, int64_t seen, int64_t window) {
  return {.scores = {RowOf(scores, row), Z(scores.size(2))},
          .first = std::max<int64_t>(0, FirstSeen(seen, window) - block.first_key),
          .end = std::max<int64_t>(0, seen - block.first_key)};
}

// Where a sequence's queries and keys stand among all.
struct Sequence {
  int64_t first_query = 0, end_query = 0, first_key = 0, end_key = 0;
};
template <typename Visit>
void ForEachSequence(const Visibility& sees, const Visit& visit) {
  Sequence sequence;
  for (size_t s = 0; s < sees.query_ends.size(); ++s) {
    sequence.end_query = sees.query_ends[s];
    sequence.end_key = sees.key_ends[s];
    if (sequence.end_query > sequence.first_query) visit(sequence);
    sequence.first_query = sequence.end_query;
    sequence.first_key = sequence.end_key;
  }
}
template <typename Visit>
void ForEachBlock(const Visibility& sees, const Sequence& sequence, const Visit& visit) {
  for (int64_t begin = sequence.first_query; begin < sequence.end_query; begin += kBlock) {
    Block block = {.begin = begin, .end = std::min(sequence.end_query, begin + kBlock)};
    int64_t first = std::numeric_limits<int64_t>::max(), end = 0;
    for (int64_t i = block.begin; i < block.end; ++i) {
      const int64_t seen = sees.seen[Z(i)];
      if (seen == 0) continue;
      first = std::min(first, FirstSeen(seen, sees.window));
      end = std::max(end, seen);
    }
    if (end == 0) continue;
    block.first_key = first / kRowStep * kRowStep;
    block.end_key = FullRows(end);
    visit(block);
  }
}

// Calls visit(query, head, row) for each row of a block's scores, which lie as ByGroup's rows do.
template <typename Visit>
void ForEachRow(const Block& block, int64_t n_kv, int64_t group, const Visit& visit) {
  const int64_t full = FullRows(block.end - block.begin);
  for (int64_t kv = 0; kv < n_kv; ++kv) {
    for (int64_t i = block.begin; i < block.end; ++i) {
      for (int64_t g = 0; g < group; ++g) visit(i, kv * group + g, (kv * full + i - block.begin) * group + g);
    }
  }
}

// Of own steps, (steps, n, n_kv, dim): scores (steps, n, n_kv, group) of queries (n, n_kv, group, dim).
at::Tensor Along(const at::Tensor& own, const at::Tensor& queries) {
  return (own.unsqueeze(3) * queries).sum(-1);
}

class Attention : public torch::autograd::Function<Attention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::TensorList& keys_of_steps,
                            const at::TensorList& values_of_steps, const Visibility& sees) {
    const at::Tensor own_keys = Stacked(keys_of_steps), own_values = Stacked(values_of_steps);
    const int64_t n = q.size(0), n_head = q.size(1), n_kv = k.size(1), dim = q.size(2), group = n_head / n_kv;
    const at::Tensor scaled = q * (1.0 / std::sqrt(static_cast<double>(dim)));
    // Over the keys that it sees: sums of exponentials, their logarithms, and the mean of the values.
    at::Tensor sums = at::ones({n, n_head}, q.options());
    at::Tensor logs = at::full({n, n_head}, -std::numeric_limits<float>::infinity(), q.options());
    at::Tensor mixed = at::zeros_like(q);
    auto* const sum = sums.mutable_data_ptr<float>();
    auto* const log = logs.mutable_data_ptr<float>();
    ForEachSequence(sees, [&](const Sequence& s) {
      const at::Tensor keys = ByGroup(k, s.first_key, s.end_key, n_kv);
      const at::Tensor values = ByGroup(v, s.first_key, s.end_key, n_kv);
      ForEachBlock(sees, s, [&](const Block& block) {
        const at::Tensor queries = ByGroup(scaled, block.begin, block.end, n_kv);
        at::Tensor scores = at::bmm(queries, keys.slice(1, block.first_key, block.end_key).transpose(1, 2));
        ForEachRow(block, n_kv, group, [&](int64_t i, int64_t head, int64_t row) {
          const ExpSum of = ExpRow(SeenRow(scores, row, block, sees.seen[Z(i)], sees.window));
          if (of.sum > 0.0F) sum[i * n_head + head] = of.sum;
          log[i * n_head + head] = of.log;
        });
        AddByGroup(at::bmm(scores, values.slice(1, block.first_key, block.end_key)), block.begin, block.end,
                   mixed);
      });
    });
    mixed.div_(sums.unsqueeze(2));
    at::Tensor all = logs;
    if (own_keys.numel() > 0) {
      const at::Tensor own = Along(own_keys, scaled.view({n, n_kv, group, dim})).view({-1, n, n_head});
      all = at::cat({logs.unsqueeze(0), own}, 0).logsumexp(0);
      const at::Tensor shares = (own - all).exp().view({-1, n, n_kv, group, 1});
      mixed.mul_((logs - all).exp().unsqueeze(2));
      mixed.view({n, n_kv, group, dim}).add_((shares * own_values.unsqueeze(3)).sum(0));
    }
    // Not what is stacked: of that each step of a chain would keep one.
    variable_list kept = {q, k, v, all, mixed};
    kept.insert(kept.end(), keys_of_steps.begin(), keys_of_steps.end());
    kept.insert(kept.end(), values_of_steps.begin(), values_of_steps.end());
    context->save_for_backward(std::move(kept));
    context->saved_data["seen"] = sees.seen;
    context->saved_data["query_ends"] = sees.query_ends;
    context->saved_data["key_ends"] = sees.key_ends;
    context->saved_data["window"] = sees.window;
    return mixed.flatten(1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &logs = saved[3], &mixed = saved[4];
    const at::TensorList of_steps = at::TensorList(saved).slice(5);
    const size_t n_steps = of_steps.size() / 2;
    const at::Tensor own_keys = Stacked(of_steps.slice(0, n_steps)),
                     own_values = Stacked(of_steps.slice(n_steps));
    const Visibility sees = {.query_ends = context->saved_data["query_ends"].toIntVector(),
                             .key_ends = context->saved_data["key_ends"].toIntVector(),
                             .seen = context->saved_data["seen"].toIntVector(),
                             .window = context->saved_data["window"].toInt()};
    const int64_t n = q.size(0), n_head = q.size(1), n_kv = k.size(1), dim = q.size(2), group = n_head / n_kv;
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    const at::Tensor gradient = gradients[0].contiguous().view(q.sizes()), scaled = q * scale;
    const at::Tensor means = (gradient * mixed).sum(-1).contiguous();
    const auto* const log = logs.const_data_ptr<float>();
    const auto* const mean = means.const_data_ptr<float>();
    at::Tensor of_q = at::zeros_like(q), of_k = at::zeros_like(k), of_v = at::zeros_like(v);
    ForEachSequence(sees, [&](const Sequence& s) {
      const at::Tensor keys = ByGroup(k, s.first_key, s.end_key, n_kv);
      const at::Tensor values = ByGroup(v, s.first_key, s.end_key, n_kv);
      at::Tensor keys_sum = at::zeros(keys.sizes(), q.options()), values_sum = at::zeros_like(keys_sum);
      ForEachBlock(sees, s, [&](const Block& block) {
        const auto seen = [&](const at::Tensor& x) { return x.slice(1, block.first_key, block.end_key); };
        const at::Tensor queries = ByGroup(scaled, block.begin, block.end, n_kv);
        const at::Tensor outputs = ByGroup(gradient, block.begin, block.end, n_kv);
        at::Tensor shares = at::bmm(queries, seen(keys).transpose(1, 2));
        at::Tensor errors = at::bmm(outputs, seen(values).transpose(1, 2));
        ForEachRow(block, n_kv, group, [&](int64_t i, int64_t head, int64_t row) {
          SoftmaxGradientRow(SeenRow(shares, row, block, sees.seen[Z(i)], sees.window),
                             log[i * n_head + head], mean[i * n_head + head], RowOf(errors, row));
        });
        seen(values_sum).add_(at::bmm(shares.transpose(1, 2), outputs));
        seen(keys_sum).add_(at::bmm(errors.transpose(1, 2), queries));
        AddByGroup(at::bmm(errors, seen(keys)), block.begin, block.end, of_q);
      });
      AddByGroup(keys_sum, s.first_key, s.end_key, of_k);
      AddByGroup(values_sum, s.first_key, s.end_key, of_v);
    });
    variable_list all = {at::Tensor(), of_k, of_v};
    if (own_keys.numel() > 0) {
      const auto grouped = [&](const at::Tensor& x) { return x.view({n, n_kv, group, dim}); };
      const at::Tensor shares = (Along(own_keys, grouped(scaled)) - logs.view({n, n_kv, group})).exp();
      const at::Tensor errors =
          shares * (Along(own_values, grouped(gradient)) - means.view({n, n_kv, group}));
      grouped(of_q).add_((errors.unsqueeze(-1) * own_keys.unsqueeze(3)).sum(0));
      const at::Tensor of_own_keys = (errors.unsqueeze(-1) * grouped(scaled)).sum(3);
      const at::Tensor of_own_values = (shares.unsqueeze(-1) * grouped(gradient)).sum(3);
      for (const at::Tensor& of_own : {of_own_keys, of_own_values}) {
        for (const at::Tensor& of_step : of_own.unbind(0)) all.push_back(of_step);
      }
    }
    all[0] = of_q.mul_(scale);
    all.resize(4 + 2 * n_steps);  // with none of what each query sees
    return all;
  }

 private:
  static at::Tensor Stacked(const at::TensorList& steps) {
    return steps.empty() ? at::empty({0}) : at::stack(steps);
  }
};

}  // namespace

at::Tensor Bf16Attention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own) {
  std::vector<at::Tensor> keys, values;
  for (const OwnStep& step : own) {
    keys.push_back(step.keys);
    values.push_back(step.values);
  }
  return Attention::apply(heads.q.contiguous(), heads.k.contiguous(), heads.v.contiguous(),
                          at::TensorList(keys), at::TensorList(values), sees);
}

}  // namespace longspec::train
