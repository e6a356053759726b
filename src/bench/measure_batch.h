// SPDX-License-Identifier: Apache-2.0
//
// Steps of several sequences with one row each, beside what they are made of: the products of as many rows,
// and the attention of each row to its own keys.
#pragma once

#include <functional>
#include <vector>

#include "bench/measure.h"
#include "longspec/status.h"

namespace longspec {

struct BatchMeasurement {
  int sequences = 1, depth = 0;  // keys each
  double ms = 0;                 // of a step of all of them
  double products_ms = 0;        // of as many rows of one sequence, after one key
  double attention_ms = 0;       // of their attention, one sequence after the other
  double times_parts = 0;        // ms over the sum of these, the median of pairs taken side by side
  double one_document_ms = 0;    // of a step of as many sequences that hold the same keys
  double times_one = 0;          // ms over a step of one of them
};

struct BatchBenchOptions {
  ModelOptions model;
  std::vector<int> depths = {512, 4096};
  std::vector<int> sequences = {1, 4, 8, 16, 32};
  int repetitions = 5;
};

// Contexts are made up.
Status MeasureBatches(const BatchBenchOptions& options,
                      const std::function<void(const BatchMeasurement&)>& on_measurement);

}  // namespace longspec
