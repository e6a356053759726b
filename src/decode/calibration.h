// SPDX-License-Identifier: Apache-2.0
//
// Measures what forward passes cost, in about a second: a few row counts at two depths of scratch caches.
// What lies between is interpolated, what lies deeper extrapolated linearly in the number of keys.
#pragma once

#include <functional>
#include <memory>

#include "decode/cost_model.h"
#include "kv/kv_cache.h"
#include "model/target.h"

namespace longspec {

struct CalibrationOptions {
  int capacity = 0;         // positions of the caches that will be used
  int deep = 2048;          // keys of the deeper cache, if the capacity allows
  double budget_ms = 1000;  // row counts beyond the first two are measured while it lasts
};

// A scratch cache that already holds `depth` positions of made-up keys and values, with room for `rows` more.
using ScratchCache = std::function<Result<std::unique_ptr<KvCache>>(int depth, int rows)>;

struct Calibration {
  CostTable table;
  bool steady = true;  // repeated passes agreed: the machine had nothing else to do
};

Result<Calibration> Calibrate(Target& target, const ScratchCache& make_cache,
                              const CalibrationOptions& options);

}  // namespace longspec
