// SPDX-License-Identifier: Apache-2.0
//
// The kinds of drafts that can be trained, in one table.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "longspec/status.h"
#include "train/trainee.h"

namespace longspec::train {

struct TraineeKind {
  const char* name;
  const char* what;                // a line for help
  std::vector<std::string> reads;  // options of the command line that only some kinds have
  // Fills in what was left open for a target of so many layers. Errors name the option.
  Status (*resolve)(TraineeOptions* options, const FeatureTarget& target, int n_layer);
  ShardNeeds (*needs)(const TraineeOptions& options);
  std::unique_ptr<Trainee> (*make)(TraineeSetup setup);
  Positions positions = Positions::kAnchorOffset;  // of short sequences, where nothing else is asked for
};

const TraineeKind& LongspecKind();
const TraineeKind& EagleKind();
const TraineeKind& BeagleKind();
const TraineeKind& ExitKind();
const TraineeKind& Eagle3Kind();
const TraineeKind& MedusaKind();
const TraineeKind& TokenswiftKind();
const TraineeKind& LmKind();

std::span<const TraineeKind* const> TraineeKinds();
Result<const TraineeKind*> FindTraineeKind(const std::string& name);

}  // namespace longspec::train
