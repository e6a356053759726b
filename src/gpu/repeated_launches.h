// SPDX-License-Identifier: Apache-2.0
//
// Passes of few rows launch the same bodies with the same arguments again and again: what changes between
// them lies in lists in the card's memory, whose places and lengths do not change (gpu_attention.h). A list
// of launches that comes a second time is made a graph, which costs the host one launch from then on.
//
// A graph keeps the arguments that it was made with. So it is found by these, all of them: a pass that would
// launch anything else, another address or number, is not that graph's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/gpu/runtime.h"

namespace longspec {

class RepeatedLaunches {
 public:
  // Lists that are kept, with their graphs.
  static constexpr size_t kMost = 64;

  explicit RepeatedLaunches(kernels::gpu::Runtime& card) : card_(card) {}

  // Behind what is in the card's stream. Throws std::bad_alloc.
  void Launch(const kernels::gpu::LaunchList& launches);

 private:
  struct Known {
    kernels::gpu::LaunchList launches;
    std::unique_ptr<kernels::gpu::LaunchGraph> graph;  // null: it came once, or the card makes none
    int64_t last_use;
  };

  kernels::gpu::Runtime& card_;
  std::vector<Known> known_;
  int64_t n_ = 0;  // launched
};

}  // namespace longspec
