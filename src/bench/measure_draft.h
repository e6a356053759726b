// SPDX-License-Identifier: Apache-2.0
//
// What a draft model's own steps cost beside a plain step of its target: a proposal of one level, of two,
// ..., as a chain and with eight nodes a level. What a further level adds is a step of the draft; the first
// one also holds what a proposal takes anyway. Of several sequences: proposals of all of them, which share
// passes where the kind of draft can (draft/pass_meeting.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

struct DraftMeasurement {
  std::string draft;  // of which kind
  int depth = 0;      // keys before the proposal
  int sequences = 1;
  int width = 1;  // nodes of each level
  int levels = 1;
  double ms = 0;                   // of all proposals, the median
  double of_plain_step = 0;        // ms over a step of one row, the median of pairs taken side by side
  double level_of_plain_step = 0;  // what a level adds, over a step of one row; of the last of `levels`
  int level_barriers = 0;          // at which the threads meet in the last of `levels`
  int plain_step_barriers = 0;
};

struct DraftBenchOptions {
  ModelOptions model;
  SpeculationOptions speculation;  // with a draft_model; its type is that of the file
  std::vector<int> depths = {512};
  std::vector<int> sequences = {1};  // each at least 1
  int repetitions = 5;
};

// Contexts are texts of made-up tokens that target and draft read. kInvalidArgument for what cannot be
// measured.
Status MeasureDraft(const DraftBenchOptions& options,
                    const std::function<void(const DraftMeasurement&)>& on_measurement);

}  // namespace longspec
