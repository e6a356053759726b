// SPDX-License-Identifier: Apache-2.0
#include "train/trainee_kinds.h"

#include <algorithm>
#include <array>

#include "base/status_macros.h"

namespace longspec::train {

std::span<const TraineeKind* const> TraineeKinds() {
  static const std::array kinds = {&LongspecKind(), &EagleKind(),      &Eagle3Kind(), &BeagleKind(),
                                   &MedusaKind(),   &TokenswiftKind(), &ExitKind(),   &LmKind()};
  return kinds;
}

std::string TraineeKindNames() {
  std::string names;
  for (const TraineeKind* kind : TraineeKinds())
    names += (names.empty() ? "" : ", ") + std::string(kind->name);
  return names;
}

Status CheckTraineeOptions(const std::string& kind, std::span<const std::string> given) {
  LS_ASSIGN(const TraineeKind* const entry, FindTraineeKind(kind));
  std::string has;
  for (const std::string& option : entry->reads) has += (has.empty() ? "" : ", ") + option;
  for (const std::string& option : given) {
    if (std::ranges::find(entry->reads, option) != entry->reads.end()) continue;
    return InvalidArgument(option + ": not an option of --kind " + kind + ", which has " + has);
  }
  return {};
}

Result<const TraineeKind*> FindTraineeKind(const std::string& name) {
  const auto kinds = TraineeKinds();
  const auto it =
      std::ranges::find(kinds, name, [](const TraineeKind* kind) { return std::string(kind->name); });
  if (it != kinds.end()) return *it;
  return InvalidArgument("--kind " + name + ": unknown; known are " + TraineeKindNames());
}

}  // namespace longspec::train
