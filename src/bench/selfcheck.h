// SPDX-License-Identifier: Apache-2.0
//
// The promise, checked on this machine and this model: tokens and logits bits of plain decoding against every
// drafter, tree shape, prefill chunk, thread count and kernel table, each at every temperature; and of the
// device that the options name, if that is not the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kernels/ops.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

struct CheckLine {
  std::string name;
  bool identical = false;
  bool skipped = false;  // nothing was compared
  std::string detail;    // the first difference, or what was compared, or why nothing was
};

struct SelfcheckOptions {
  ModelOptions model;
  std::shared_ptr<const GgufFile> file = {};  // the model's, which is loaded often; null: it is opened
  std::vector<int32_t> prompt;
  int n_predict = 48;
  std::vector<float> temperatures = {0.0F, 0.7F, 1.0F};
  // Files or folders of draft models: each is checked with the drafter that it is for. Drafters left without
  // one are skipped.
  std::vector<std::string> draft_models;
  // The first is the one the others are compared with; they run a shorter generation if they are called
  // "reference".
  std::vector<const kernels::KernelTable*> tables;
};

// Calls on_line for every comparison, and for every drafter that is skipped. Returns whether all were
// identical; an error is a check that could not be made.
Result<bool> RunSelfcheck(const SelfcheckOptions& options,
                          const std::function<void(const CheckLine&)>& on_line);

}  // namespace longspec
