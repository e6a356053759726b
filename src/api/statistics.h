// SPDX-License-Identifier: Apache-2.0
//
// Statistics of an answer as JSON, in llama.cpp's words where it has them. Pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "longspec/generation.h"
#include "longspec/stats.h"

namespace longspec::api {

// Tokens per second; 0 where no time passed.
double PerSecond(int64_t n, double ms);

nlohmann::ordered_json TimingsJson(const Timings& timings);

// What clients see: {"type", "rounds", "mean_acceptance_length", "by_drafter": [{"name", "drafted",
// "accepted"}]}
nlohmann::ordered_json SpeculationJson(const SpeculativeStats& stats);

// All that is known, for whoever runs the program.
nlohmann::ordered_json FullSpeculationJson(const GenerationResult& result);

// As both of them name it.
const char* ExactnessName(bool lossless);

}  // namespace longspec::api
