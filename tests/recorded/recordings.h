// SPDX-License-Identifier: Apache-2.0
//
// What recorded answers are played on: the recordings themselves, machines as tables of costs, and the prior
// that ships for their model.
#pragma once

#include <filesystem>
#include <vector>

#include "draft_model/draft_models.h"
#include "playback.h"
#include "policy/cost_model.h"

namespace longspec::testing {

// answers.jsonl.gz, or the file that LONGSPEC_RECORDED names (pack_answers.py makes them).
std::vector<Recording> ReadRecordings();
// A file of tests/recorded, or any.
std::vector<Recording> ReadRecordings(const char* name);
std::vector<Recording> ReadRecordings(const std::filesystem::path& path);

CostTable Measured();        // two cores with AVX2
CostTable MeasuredAvx512();  // two cores with AVX-512
CostTable MeasuredCoder();   // of a model of 1.5 billion parameters, two cores with AVX2
CostTable CheapRows();       // rows that cost next to nothing
CostTable DearRows();        // rows that cost a step each

// Finds the prior of the recordings' model in models/priors; LONGSPEC_PRIOR names another one to take in its
// place.
DraftModels* ShippedPrior();
DraftModels* ShippedCoderPrior();  // the same of Qwen2.5-Coder's

}  // namespace longspec::testing
