// SPDX-License-Identifier: Apache-2.0
//
// Statistics of an answer as JSON, in llama.cpp's words where it has them. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "longspec/generation.h"
#include "longspec/stats.h"

namespace longspec::api {

// Tokens per second; 0 where no time passed.
double PerSecond(int64_t n, double ms);

// {name: value, ...}
template <typename Value>
nlohmann::ordered_json NamedJson(const std::vector<std::pair<std::string, Value>>& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}

// Adds where the time of rounds went, in the words of SpeculativeStats, which `stats` has, too.
template <typename Stats>
void AddRoundTimes(const Stats& stats, nlohmann::ordered_json* json) {
  (*json)["draft_ms"] = stats.draft_ms;
  (*json)["target_ms"] = stats.target_ms;
  (*json)["verify_ms"] = stats.verify_ms;
  (*json)["commit_ms"] = stats.commit_ms;
}

nlohmann::ordered_json TimingsJson(const Timings& timings);

// What clients see: {"type", "rounds", "mean_acceptance_length", "by_drafter": [{"name", "drafted",
// "accepted"}]}
nlohmann::ordered_json SpeculationJson(const SpeculativeStats& stats);

// All that is known, for whoever runs the program.
nlohmann::ordered_json FullSpeculationJson(const GenerationResult& result);

// As both of them name it.
const char* ExactnessName(bool lossless);

}  // namespace longspec::api
