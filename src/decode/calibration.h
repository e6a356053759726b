// SPDX-License-Identifier: Apache-2.0
//
// Measures what forward passes cost, in about a second: a few row counts at two depths of scratch caches, or
// three. A large model's passes take longer: there only passes of one row and of eight are measured. Costs
// between these are interpolated, and those of deeper contexts extrapolated linearly in the number of keys.
// So a program that will go far beyond the second depth measures at a third, whose keys no processor's cache
// holds. Pieces of prompts are much wider than what decoding verifies: two such widths are measured, once
// each, unless that would take too long, as with large models, whose rows cost in proportion anyway.
#pragma once

#include <functional>
#include <memory>

#include "base/preemptions.h"
#include "kv/kv_cache.h"
#include "model/target.h"
#include "policy/cost_model.h"

namespace longspec {

struct CalibrationOptions {
  int capacity = 0;         // positions of the caches that will be used
  int deep = 2048;          // keys of the deeper cache, if the capacity allows
  int deepest = 0;          // and of a third one; 0, or not twice as deep: there is none
  double budget_ms = 1000;  // row counts beyond the first two are measured while it lasts
  double wide_ms = 2000;    // what the wide points may take altogether, by what narrower ones took
  int most_rows = 512;      // of a pass of the target
  std::function<int64_t()> preemptions = Preemptions;  // of this process, so far
  std::function<bool()> keep_going = {};               // asked before each pass; false: kCancelled
};

// A scratch cache that already holds `depth` positions of made-up keys and values, with room for `rows` more.
using ScratchCache = std::function<Result<std::unique_ptr<KvCache>>(int depth, int rows)>;

struct Calibration {
  CostTable table;
  // Repeated passes agreed and nobody else wanted the cores: the machine had nothing else to do.
  bool steady = true;
};

Result<Calibration> Calibrate(Target& target, const ScratchCache& make_cache,
                              const CalibrationOptions& options);

}  // namespace longspec
