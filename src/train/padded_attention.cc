// SPDX-License-Identifier: Apache-2.0
//
// Attention of a whole batch in one call, as a GPU wants it: sequences beside each other, filled up to the
// longest.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/size.h"
#include "train/attention.h"

namespace longspec::train {
namespace {

// Masks whose rows are of another length are copied by LibTorch's kernels.
constexpr int64_t kLengthStep = 16;

// Rows of packed sequences as (n_sequences, length) places.
class Places {
 public:
  Places(const Ends& ends, at::Device device) : n_(std::ssize(ends)) {
    int64_t begin = 0;
    for (const int64_t end : ends) {
      length_ = std::max(length_, end - begin);
      begin = end;
    }
    length_ = (length_ + kLengthStep - 1) / kLengthStep * kLengthStep;
    full_ = n_ * length_ == begin;
    if (full_) return;
    std::vector<int64_t> places;
    begin = 0;
    for (int64_t s = 0; s < n_; ++s) {
      for (int64_t i = 0; i < ends[Z(s)] - begin; ++i) places.push_back(s * length_ + i);
      begin = ends[Z(s)];
    }
    places_ = at::tensor(places, at::kLong).to(device);
  }

  int64_t n() const { return n_; }
  int64_t length() const { return length_; }

  // x (rows, ...) as (n_sequences, length, ...), 0 where there is no row.
  at::Tensor Beside(const at::Tensor& x) const {
    std::vector<int64_t> shape = x.sizes().vec();
    shape[0] = n_ * length_;
    const at::Tensor all = full_ ? x : at::zeros(shape, x.options()).index_copy(0, places_, x);
    shape[0] = length_;
    shape.insert(shape.begin(), n_);
    return all.reshape(shape);
  }

  // And back.
  at::Tensor Behind(const at::Tensor& x) const {
    const at::Tensor all = x.flatten(0, 1);
    return full_ ? all : all.index_select(0, places_);
  }

 private:
  int64_t n_ = 0, length_ = 0;
  bool full_ = false;
  at::Tensor places_;  // (rows)
};

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

}  // namespace

at::Tensor PaddedAttention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own,
                           Precision precision) {
  const at::Device device = heads.q.device();
  const at::ScalarType type = precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  const Places queries(sees.query_ends, device), keys(sees.key_ends, device);
  if (queries.length() == 0) return heads.q.flatten(1);
  const int64_t group = heads.q.size(1) / heads.k.size(1);
  // (n_sequences, heads, length, head_dim)
  const auto beside = [&](const Places& places, const at::Tensor& x, int64_t repeats) {
    const at::Tensor table = places.Beside(x.to(type)).transpose(1, 2);
    return repeats == 1 ? table : table.repeat_interleave(repeats, 1);
  };
  const at::Tensor q = beside(queries, heads.q, 1);
  std::vector<at::Tensor> k = {beside(keys, heads.k, group)}, v = {beside(keys, heads.v, group)};
  for (const OwnStep& step : own) {
    k.push_back(beside(queries, step.keys, group));
    v.push_back(beside(queries, step.values, group));
  }
  std::optional<at::Tensor> mask;
  at::Tensor blind;  // queries that see nothing: they are shown a key, and what comes of it is dropped
  if (!own.empty() || !IsCausal(sees)) {
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
