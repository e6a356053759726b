// SPDX-License-Identifier: Apache-2.0
//
// Timing of prefill, of one decoding step, and of verification steps with many rows, at given context
// lengths. Times are medians of runs in this process, on this machine; ratios between them mean more than
// they do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "formats/gguf.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

struct Measurement {
  std::string test;  // "prefill": `depth` tokens from nothing; "decode": one row after `depth` keys, and its
                     // argmax; "rows": a chain of `rows` rows after `depth` keys, logits for all;
                     // "attention", "tree": attention_only
  int depth = 0;
  int rows = 1;
  double ms = 0;        // the median of all runs
  double least_ms = 0;  // the shortest run; 0 for prefill, which runs once
  double times_one_row =
      0;  // `ms` in steps of one row, the median of pairs taken side by side; 0: no one-row step
  double tokens_per_second = 0;  // rows per second
  double gb_per_second = 0;      // weights and keys and values read once, over the time; 0 for prefill
  double gmac_per_second = 0;    // 10^9 multiply-adds, over the time
  double roofline_share = 0;     // the least time this machine could take (machine.h), over the time
};

// What choosing a token from a row of logits costs at temperature 1, beside computing them.
struct SamplingCost {
  std::string filters;       // "none"; "default": those of SamplingOptions
  int vocab = 0;             // logits of a row
  int depth = 0;             // of the context they are of, the shortest one
  double us = 0;             // the median of many choices
  double share_of_step = 0;  // of a step of one row after as many keys; 0: none was measured
};

struct BenchOptions {
  ModelOptions model;
  std::shared_ptr<const GgufFile> file = {};  // the model's; null: it is opened
  std::vector<int> depths = {512};
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64};
  int repetitions = 5;  // at least; short steps run more often
  // Contexts are made up instead of evaluated: no prefill is measured, and depths may be larger than anyone
  // would wait for.
  bool made_up_context = false;
  // Attention alone (measure_attention.h), after made-up contexts.
  bool attention_only = false;
};

// The machine's limits are measured first, what sampling costs last. Without real contexts there are no
// logits that are worth sampling from: then on_sampling is not called.
Status RunBench(const BenchOptions& options, const std::function<void(const MachineLimits&)>& on_machine,
                const std::function<void(const Measurement&)>& on_measurement,
                const std::function<void(const SamplingCost&)>& on_sampling = {});

}  // namespace longspec
