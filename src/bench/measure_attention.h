// SPDX-License-Identifier: Apache-2.0
//
// Timing of attention alone, over all layers of a model: chains of rows, and trees of as many.
#pragma once

#include <functional>

#include "bench/loaded_model.h"
#include "bench/machine.h"
#include "bench/measure.h"
#include "longspec/status.h"

namespace longspec {

// At each depth of the options, after made-up keys and values: "attention", a chain of each row count, and,
// where there is more than one row, "tree", a binary tree of as many.
Status MeasureAttention(const BenchOptions& options, LoadedModel& model, const MachineLimits& limits,
                        const std::function<void(const Measurement&)>& on_measurement);

}  // namespace longspec
