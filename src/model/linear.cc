// SPDX-License-Identifier: Apache-2.0
#include "model/linear.h"

#include <algorithm>

#include "kernels/packing.h"

namespace longspec {
namespace {

// Rows taken per pass over a worker's weights: their quantised activations stay in the second-level cache.
constexpr int kRowBlock = 128;
// Shorter runs share more evenly, longer ones stream better.
constexpr int kRunsPerWorker = 6;
constexpr int kLongestRun = 64;

int Groups(const kernels::PackedMatrix& w) {
  return static_cast<int>((w.n_out + kernels::kRowGroup - 1) / kernels::kRowGroup);
}

void RunGroups(const kernels::KernelTable& kernels, const LinearJob& job, const Activations& x, int n_rows,
               int begin, int end) {
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

void RunLinear(const kernels::KernelTable& kernels, ThreadTeam::Worker& worker,
               std::span<const LinearJob> jobs, const Activations& x, int n_rows) {
  int total = 0;
  for (const LinearJob& job : jobs) total += Groups(*job.w);
  // Workers take runs of groups until none is left, so that they finish together however unequal their cores
  // are.
  const int run = std::clamp(total / (worker.count() * kRunsPerWorker), 1, kLongestRun);
  for (int begin = worker.Claim() * run; begin < total; begin = worker.Claim() * run) {
    const int end = std::min(begin + run, total);
    int first = 0;  // of this job's groups, counted through all jobs
    for (const LinearJob& job : jobs) {
      const int groups = Groups(*job.w);
      const int from = std::max(begin - first, 0), to = std::min(end - first, groups);
      if (from < to) RunGroups(kernels, job, x, n_rows, from, to);
      first += groups;
    }
  }
}

}  // namespace longspec
