// SPDX-License-Identifier: Apache-2.0
#include "train/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/size.h"
#include "train/bf16_product.h"

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
                    std::span<const int64_t> seen, int64_t window, std::span<const OwnStep> own,
                    int64_t begin) {
  const int64_t m = q.size(0), n_kv = k.size(1), dim = q.size(2), group = q.size(1) / n_kv;
  const int64_t n = *std::ranges::max_element(seen);
  if (n == 0 && own.empty()) return at::zeros_like(q);
  const at::Tensor scaled = (q * (1.0 / std::sqrt(static_cast<double>(dim))))
                                .view({m, n_kv, group, dim})
                                .permute({1, 0, 2, 3})
                                .contiguous();
  const at::Tensor count = at::tensor(seen, at::kLong).to(q.device()).view({m, 1, 1});
  const at::Tensor key = at::arange(n, at::TensorOptions(at::kLong).device(q.device())).view({1, 1, n});
  at::Tensor hidden = key.ge(count);
  if (window >= 0) hidden = hidden.logical_or(key.lt(count - 1 - window));
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

// Whether bf16_attention.cc has it.
bool InBf16(const Heads& heads, Precision precision) {
  return precision == Precision::kBf16 && HasBf16Rows(heads.q.device());
}

bool OnGpu(const Heads& heads) { return !heads.q.device().is_cpu(); }

// As many queries as keys; query i of a sequence sees `less` keys fewer than i + 1.
Visibility CausalVisibility(const Ends& ends, int64_t less, int64_t window) {
  Visibility sees = {.query_ends = ends, .key_ends = ends, .seen = {}, .window = window};
  ForEachSequence(ends, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < end - begin; ++i) sees.seen.push_back(std::max<int64_t>(0, i + 1 - less));
  });
  return sees;
}

}  // namespace

at::Tensor CausalAttention(const Heads& heads, const Ends& ends, Precision precision, int64_t window) {
  if (OnGpu(heads)) return PaddedAttention(heads, CausalVisibility(ends, 0, window), {}, precision);
  if (InBf16(heads, precision)) return Bf16Attention(heads, CausalVisibility(ends, 0, window), {});
  std::vector<at::Tensor> parts;
  ForEachSequence(ends, [&](int64_t begin, int64_t end) {
    CausalParts(heads.q.slice(0, begin, end), heads.k.slice(0, begin, end), heads.v.slice(0, begin, end),
                window, &parts);
  });
  return at::cat(parts, 0).flatten(1);
}

at::Tensor LaggedAttention(const Heads& heads, const Ends& ends, Precision precision, int64_t lag) {
  if (OnGpu(heads)) return PaddedAttention(heads, CausalVisibility(ends, lag, -1), {}, precision);
  if (InBf16(heads, precision)) return Bf16Attention(heads, CausalVisibility(ends, lag, -1), {});
  std::vector<at::Tensor> parts;
  ForEachSequence(ends, [&](int64_t begin, int64_t end) {
    const int64_t blind = std::min(lag, end - begin), last = end - blind;
    parts.push_back(at::zeros_like(heads.q.slice(0, begin, begin + blind)));
    if (last == begin) return;
    parts.push_back(Attend(heads.q.slice(0, begin + blind, end), heads.k.slice(0, begin, last),
                           heads.v.slice(0, begin, last), std::nullopt));
  });
  return at::cat(parts, 0).flatten(1);
}

at::Tensor SeenAttention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own,
                         Precision precision) {
  if (OnGpu(heads)) return PaddedAttention(heads, sees, own, precision);
  if (InBf16(heads, precision)) return Bf16Attention(heads, sees, own);
  std::vector<at::Tensor> parts;
  int64_t begin = 0, first_key = 0;
  for (size_t s = 0; s < sees.query_ends.size(); ++s) {
    const at::Tensor keys = heads.k.slice(0, first_key, sees.key_ends[s]);
    const at::Tensor values = heads.v.slice(0, first_key, sees.key_ends[s]);
    for (; begin < sees.query_ends[s]; begin += parts.back().size(0)) {
      const int64_t end = std::min(sees.query_ends[s], begin + kQueriesAtOnce);
      parts.push_back(SeenPart(heads.q.slice(0, begin, end), keys, values,
                               std::span(sees.seen).subspan(Z(begin), Z(end - begin)), sees.window, own,
                               begin));
    }
    first_key = sees.key_ends[s];
  }
  return at::cat(parts, 0).flatten(1);
}

}  // namespace longspec::train
