// SPDX-License-Identifier: Apache-2.0
//
// Measured costs kept on disk (engine/cache_file.h), one file per model, machine and options, so that a
// program starts without measuring again. Everything here may fail without harm: what cannot be read is
// measured, what cannot be written is measured again next time.
#pragma once

#include <string>

#include "decode/cost_model.h"
#include "longspec/engine.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

// Everything a cost depends on, in one line.
std::string CalibrationKey(const ModelInfo& info, const ModelOptions& options);

// kNotFound: nothing is known of this key; kCorrupt: the file is none of ours or damaged.
Result<CostTable> ReadCalibration(const std::string& folder, const std::string& key);
Status WriteCalibration(const std::string& folder, const std::string& key, const CostTable& table);

}  // namespace longspec
