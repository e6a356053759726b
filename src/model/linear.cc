// SPDX-License-Identifier: Apache-2.0
#include "model/linear.h"

#include <algorithm>

#include "kernels/packing.h"

namespace longspec {
namespace {

// Rows taken per pass over a worker's weights: their quantised activations stay in the second-level cache.
constexpr int kRowBlock = 128;

int Groups(const kernels::PackedMatrix& w) {
  return static_cast<int>((w.n_out + kernels::kRowGroup - 1) / kernels::kRowGroup);
}

void RunGroups(const kernels::KernelTable& kernels, const LinearJob& job, const Activations& x, int n_rows, int begin, int end) {
  for (int row = 0; row < n_rows; row += kRowBlock) {
    const int rows = std::min(kRowBlock, n_rows - row);
    float* y = job.y + row * job.w->n_out;
    if (kernels::IsQuantized(job.w->format)) {
      kernels.matmul_q8({.w = job.w,
                         .x = x.q8 + int64_t{row} * (x.width / kernels::kQuantBlock),
                         .y = y,
                         .y_stride = job.w->n_out,
                         .n_rows = rows,
                         .group_begin = begin,
                         .group_end = end,
                         .add = job.add});
    } else {
      kernels.matmul_float({.w = job.w,
                            .x = x.f32 + int64_t{row} * x.width,
                            .x_stride = x.width,
                            .y = y,
                            .y_stride = job.w->n_out,
                            .n_rows = rows,
                            .group_begin = begin,
                            .group_end = end,
                            .add = job.add});
    }
  }
}

}  // namespace

void RunLinear(const kernels::KernelTable& kernels, const ThreadTeam::Worker& worker, std::span<const LinearJob> jobs,
               const Activations& x, int n_rows) {
  // Equal shares of bytes, since reading weights is what a step with few rows costs.
  size_t total = 0;
  for (const LinearJob& job : jobs) total += static_cast<size_t>(Groups(*job.w)) * job.w->group_bytes;
  const auto workers = static_cast<size_t>(worker.count()), index = static_cast<size_t>(worker.index());
  const size_t share_begin = total * index / workers, share_end = total * (index + 1) / workers;
  size_t at = 0;
  for (const LinearJob& job : jobs) {
    const int groups = Groups(*job.w);
    // The group that a share's border falls into belongs to the earlier share.
    const auto cut = [&](size_t border) {
      if (border <= at) return 0;
      return static_cast<int>(std::min<size_t>(static_cast<size_t>(groups), (border - at + job.w->group_bytes - 1) / job.w->group_bytes));
    };
    const int begin = cut(share_begin), end = cut(share_end);
    if (begin < end) RunGroups(kernels, job, x, n_rows, begin, end);
    at += static_cast<size_t>(groups) * job.w->group_bytes;
  }
}

}  // namespace longspec
