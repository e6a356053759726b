// SPDX-License-Identifier: Apache-2.0
//
// Measured costs kept on disk (engine/cache_file.h), one file per model, machine and options, so that a
// program starts without measuring again. Everything here may fail without harm: what cannot be read is
// measured, what cannot be written is measured again next time.
#pragma once

#include <cstdint>
#include <string>

#include "longspec/engine.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "policy/cost_model.h"

namespace longspec {

struct KeptCosts {
  CostTable table;
  bool steady = true;       // they were measured on a machine that had nothing else to do
  int64_t measured_at = 0;  // seconds since 1970
};

// Everything a cost depends on, in one line.
std::string CalibrationKey(const ModelInfo& info, const ModelOptions& options);

// kNotFound: nothing is known of this key; kCorrupt: the file is none of ours or damaged.
Result<KeptCosts> ReadCalibration(const std::string& folder, const std::string& key);
Status WriteCalibration(const std::string& folder, const std::string& key, const KeptCosts& costs);
// Whether it is worth measuring these costs once more: they were measured on a busy machine, and that was a
// day ago or, as the clock has it now, lies in the future.
bool AreWorthMeasuringAgain(const KeptCosts& costs, int64_t now);
// The better of two measurements of one machine: the steady one, else the one that other programs lengthened
// less.
KeptCosts BetterOf(KeptCosts before, KeptCosts now);

}  // namespace longspec
