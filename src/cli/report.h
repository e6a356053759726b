// SPDX-License-Identifier: Apache-2.0
//
// What people and programs read about a generation and a model. Pure functions of the results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "longspec/engine.h"

namespace longspec::cli {

// Lines in the form that users of llama.cpp grep for, each ending in a line break.
std::string FormatStatistics(const GenerationResult& result);
// What the speculation policy did and why, for --verbose.
std::string FormatPolicy(const SpeculativeStats& stats);
// The statistics in a few words, for between the turns of a chat.
std::string FormatBriefStatistics(const GenerationResult& result);
nlohmann::ordered_json GenerationJson(const GenerationResult& result, const std::string& model);

std::string FormatMemoryPlan(const MemoryPlan& plan);
std::string FormatInfo(const ModelInfo& info);
// One row more, once it is loaded: how long that took and where the weights came from.
std::string FormatLoad(const ModelInfo& info, double ms);
nlohmann::ordered_json InfoJson(const ModelInfo& info);

// One line, ending in a line break. Bytes that are not UTF-8 become U+FFFD.
std::string JsonLine(const nlohmann::ordered_json& json);

// Tokens are shown on one line each: control characters and bytes that are not UTF-8 as \n, \t, \\ or \x1b.
std::string EscapeText(std::string_view bytes);

}  // namespace longspec::cli
