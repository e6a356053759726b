// SPDX-License-Identifier: Apache-2.0
#include "attention/attention_mass.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace longspec {

void AttentionMass(const kernels::KernelTable& kernels, const AttentionShape& shape, const KvSpan& span,
                   std::span<const float> queries, std::vector<float>* mass) {
  const auto n = static_cast<size_t>(span.n_committed), dim = static_cast<size_t>(shape.head_dim);
  const auto group = static_cast<size_t>(shape.group());
  LS_CHECK(queries.size() == static_cast<size_t>(shape.n_head) * dim);
  mass->assign(n, 0);
  if (n == 0) return;
  const size_t stride = (n + kKvChunk - 1) / kKvChunk * kKvChunk;
  std::vector<float> scores(group * stride);
  for (int head = 0; head < shape.n_kv_head; ++head) {
    for (size_t begin = 0; begin < n; begin += kKvChunk) {
      const auto keys = static_cast<int>(std::min<size_t>(kKvChunk, n - begin));
      kernels.scores({.keys = span.keys(static_cast<int>(begin / kKvChunk), head),
                      .q = queries.data() + static_cast<size_t>(head) * group * dim,
                      .out = scores.data() + begin,
                      .out_stride = static_cast<int64_t>(stride),
                      .scale = shape.scale,
                      .n_rows = static_cast<int>(group),
                      .head_dim = shape.head_dim,
                      .block_begin = 0,
                      .block_end = (keys + kKeyBlock - 1) / kKeyBlock,
                      .type = KernelType(span.layout.k_type)});
    }
    for (size_t row = 0; row < group; ++row) {
      const auto of_row = std::span(scores).subspan(row * stride, n);
      const float largest = *std::ranges::max_element(of_row);
      double sum = 0;
      for (float& score : of_row) {
        score = std::exp(score - largest);
        sum += static_cast<double>(score);
      }
      const double share = 1.0 / (sum * shape.n_head);
      for (size_t p = 0; p < n; ++p) (*mass)[p] += static_cast<float>(static_cast<double>(of_row[p]) * share);
    }
  }
}

}  // namespace longspec
