// SPDX-License-Identifier: Apache-2.0
#include "train/loss_head.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/size.h"

namespace longspec::train {
namespace {

std::span<const int64_t> Values(const at::Tensor& contiguous) {
  return {contiguous.const_data_ptr<int64_t>(), Z(contiguous.numel())};
}

}  // namespace

at::Tensor LossHead::RowsOf(const at::Tensor& head) const {
  return tokens.defined() ? head.index_select(0, tokens) : head;
}

LossHead DrawLossHead(const at::Tensor& head, int64_t count, uint64_t seed, Targets* targets) {
  const int64_t n = head.size(0);
  if (count <= 0 || count >= n) return {.weight = head, .tokens = {}};
  enum : uint8_t { kLeftOut, kDrawn, kOwn };
  std::vector<uint8_t> is(Z(n), kLeftOut);
  const at::Tensor own = targets->ids.cpu().contiguous();
  for (const int64_t token : Values(own)) is[Z(token)] = kOwn;
  const int64_t n_own = std::ranges::count(is, kOwn), n_others = std::max<int64_t>(1, count - n_own);
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::Tensor order = at::randperm(n, generator, at::TensorOptions(at::kLong));
  int64_t n_drawn = 0;
  for (const int64_t token : Values(order)) {
    if (n_drawn == n_others) break;
    if (is[Z(token)] == kOwn) continue;
    is[Z(token)] = kDrawn;
    ++n_drawn;
  }
  const auto others_count = static_cast<float>(std::log(static_cast<double>(n - n_own) / n_others));
  std::vector<int64_t> tokens, row(Z(n));
  std::vector<float> log_counts;
  for (int64_t token = 0; token < n; ++token) {
    if (is[Z(token)] == kLeftOut) continue;
    row[Z(token)] = std::ssize(tokens);
    tokens.push_back(token);
    log_counts.push_back(is[Z(token)] == kOwn ? 0.0F : others_count);
  }
  const at::Device device = head.device();
  const at::Tensor drawn = at::tensor(tokens, at::kLong).to(device);
  targets->ids = at::tensor(row, at::kLong).to(device).index_select(0, targets->ids.flatten());
  targets->ids = targets->ids.view_as(targets->weights);
  targets->log_counts = at::tensor(log_counts, at::kFloat).to(device);
  return {.weight = head.index_select(0, drawn), .tokens = drawn};
}

}  // namespace longspec::train
