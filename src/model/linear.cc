// SPDX-License-Identifier: Apache-2.0
#include "model/linear.h"

#include <algorithm>
#include <utility>

#include "kernels/packing.h"

namespace longspec {
namespace {

// Rows taken per pass over a worker's weights: their quantised activations stay in the second-level cache.
constexpr int kRowBlock = 128;
// A run of groups is this part of an equal share of what is left: long runs first, which stream, short ones
// at the end, so that workers finish together however unequal their cores are.
constexpr int kRunPart = 2;
constexpr int kLongestRun = 64;

int Groups(const kernels::PackedMatrix& w) {
  return static_cast<int>((w.n_out + kernels::kRowGroup - 1) / kernels::kRowGroup);
}

// Cuts [0, total) into runs, the same for every worker.
class Runs {
 public:
  Runs(int total, int n_workers) : total_(total), n_part_(n_workers * kRunPart) {}

  // Run k, which must not be less than the last one asked for; empty past the last run.
  std::pair<int, int> At(int k) {
    for (; index_ < k; ++index_) {
      const int left = total_ - end_;
      begin_ = end_;
      end_ += std::min(left, std::clamp(left / n_part_, 1, kLongestRun));
    }
    return {begin_, end_};
  }

 private:
  const int total_, n_part_;
  int index_ = -1, begin_ = 0, end_ = 0;
};

// The weights of a group, counted through all jobs.
const std::byte* WeightsOf(std::span<const LinearJob> jobs, int group) {
  for (const LinearJob& job : jobs) {
    if (group < Groups(*job.w)) return job.w->data + static_cast<size_t>(group) * job.w->group_bytes;
    group -= Groups(*job.w);
  }
  return nullptr;
}

// `next`: what is read after these groups.
void RunGroups(const kernels::KernelTable& kernels, const LinearJob& job, const Activations& x, int n_rows,
               int begin, int end, const std::byte* next) {
  for (int row = 0; row < n_rows; row += kRowBlock) {
    const int rows = std::min(kRowBlock, n_rows - row);
    // What the kinds of products have in common.
    const auto product = [&](auto args) {
      args.w = job.w;
      args.y = job.y + row * job.w->n_out;
      args.y_stride = job.w->n_out;
      args.n_rows = rows;
      args.group_begin = begin;
      args.group_end = end;
      args.add = job.add;
      if constexpr (requires { args.next; }) args.next = next;
      return args;
    };
    const int64_t at = int64_t{row} * x.width;
    if (kernels::HasSuperBlocks(job.w->format)) {
      kernels.matmul_q8k(product(kernels::MatmulQ8KArgs{.x = x.q8k + at / kernels::kSuperBlock}));
    } else if (kernels::IsQuantized(job.w->format)) {
      kernels.matmul_q8(product(kernels::MatmulQ8Args{.x = x.q8 + at / kernels::kQuantBlock}));
    } else if (kernels::IsInBf16(job.w->format)) {
      kernels.matmul_bf16(product(kernels::MatmulBf16Args{.x = x.bf16 + at, .x_stride = x.width}));
    } else {
      kernels.matmul_float(product(kernels::MatmulFloatArgs{.x = x.f32 + at, .x_stride = x.width}));
    }
  }
}

}  // namespace

void RunLinear(const kernels::KernelTable& kernels, ThreadTeam::Worker& worker,
               std::span<const LinearJob> jobs, const Activations& x, int n_rows) {
  int total = 0;
  for (const LinearJob& job : jobs) total += Groups(*job.w);
  Runs runs(total, worker.count());
  const auto claim = [&] { return runs.At(worker.Claim()); };
  for (std::pair<int, int> run = claim(), next; run.first < run.second; run = next) {
    const auto [begin, end] = run;
    // The next run is claimed early, so that its weights are fetched while the last of these are multiplied;
    // but not where another worker may want it.
    const bool early = total - end >= 2 * worker.count();
    next = early ? claim() : std::pair(total, total);
    int first = 0;  // of this job's groups, counted through all jobs
    for (const LinearJob& job : jobs) {
      const int groups = Groups(*job.w);
      const int from = std::max(begin - first, 0), to = std::min(end - first, groups);
      const int after = first + to < end ? first + to : next.first;
      if (from < to) RunGroups(kernels, job, x, n_rows, from, to, WeightsOf(jobs, after));
      first += groups;
    }
    if (!early) next = claim();
  }
}

}  // namespace longspec
