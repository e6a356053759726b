// SPDX-License-Identifier: Apache-2.0
#include "train/trainee_kinds.h"

#include <algorithm>
#include <array>

namespace longspec::train {

std::span<const TraineeKind* const> TraineeKinds() {
  static const std::array kinds = {&LongspecKind(), &EagleKind(),      &Eagle3Kind(), &BeagleKind(),
                                   &MedusaKind(),   &TokenswiftKind(), &ExitKind(),   &LmKind()};
  return kinds;
}

Result<const TraineeKind*> FindTraineeKind(const std::string& name) {
  const auto kinds = TraineeKinds();
  const auto it =
      std::ranges::find(kinds, name, [](const TraineeKind* kind) { return std::string(kind->name); });
  if (it != kinds.end()) return *it;
  std::string known;
  for (const TraineeKind* kind : kinds) known += (known.empty() ? "" : ", ") + std::string(kind->name);
  return InvalidArgument("--kind " + name + ": unknown; known are " + known);
}

}  // namespace longspec::train
