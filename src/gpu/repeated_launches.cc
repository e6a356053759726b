// SPDX-License-Identifier: Apache-2.0
#include "gpu/repeated_launches.h"

#include <algorithm>

namespace longspec {

void RepeatedLaunches::Launch(const kernels::gpu::LaunchList& launches) {
  ++n_;
  const auto known = std::ranges::find(known_, launches, &Known::launches);
  if (known == known_.end()) {
    if (known_.size() == kMost) known_.erase(std::ranges::min_element(known_, {}, &Known::last_use));
    known_.push_back({.launches = launches, .graph = nullptr, .last_use = n_});
    card_.LaunchAll(launches);
    return;
  }
  known->last_use = n_;
  if (known->graph == nullptr) known->graph = card_.MakeGraph(launches);
  if (known->graph == nullptr) {
    card_.LaunchAll(launches);
  } else {
    card_.LaunchAsOne(*known->graph);
  }
}

}  // namespace longspec
