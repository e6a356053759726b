// SPDX-License-Identifier: Apache-2.0
//
// Options that several subcommands share, under llama.cpp's names. Each function declares a group on a
// command and binds it to the struct given, which must outlive the parse.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/sampling_fields.h"
#include "longspec/engine.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec::cli {

inline constexpr int kMaxInt = 1 << 30;  // upper bound of whole numbers given as options

struct OutputFlags {
  bool verbose = false;
  bool no_progress = false;
};

void AddModelOptions(CLI::App& app, ModelOptions* options);
// For a command whose context has the size it takes: `why` says what decides it, where -c would have no
// effect.
void RefuseContextSize(CLI::App& app, const std::string& why);
// What is left of the distribution before temperature: --top-k, --top-p, --min-p.
void AddFilterOptions(CLI::App& app, SamplingOptions* options, const std::string& group);
void AddSamplingOptions(CLI::App& app, SamplingOptions* options);
// Whose drafters these options are for: those of --spec-type, or others, which the command names.
enum class SpeculationIs : uint8_t { kOfType, kOfOthers };
// Those that are given without effect on drafters of --spec-type are refused when the command line is parsed.
// Returns the names of what was given, once that is done.
std::function<std::vector<std::string>()> AddSpeculationOptions(CLI::App& app, SpeculationOptions* options,
                                                                SpeculationIs use = SpeculationIs::kOfType);
// -n, stop strings, --ignore-eos.
void AddLimitOptions(CLI::App& app, GenerationRequest* request);
void AddOutputOptions(CLI::App& app, OutputFlags* flags);

// Checks for numbers: both ends are right, and without a high one all that are finite.
CLI::Validator NumberFrom(double low, double high = std::numeric_limits<double>::infinity());
CLI::Validator PositiveNumber();
// A check for options: what an unset variable of a script leaves must not mean that nothing was asked for.
std::string CheckNotEmpty(const std::string& value);
// llama.cpp's -1 where it means what `value` does here.
CLI::Validator MinusOneIs(const std::string& value);
// As CheckNotEmpty of all numbers that the command has: CLI11 reads an empty one as 0. Called with all
// options declared.
void RefuseEmptyNumbers(CLI::App& app);

// "1234+0.5", "1234-inf" -> token and bias.
Result<std::pair<int32_t, float>> ParseLogitBias(const std::string& text);

using api::kAllSamplers;
using api::kSamplers;

// Turns off what `list` ("top_k;temperature") leaves out. Returns what the user should know: samplers of
// llama.cpp that do not exist here, an order that is not kept. Any other name is an error that lists the
// known ones.
Result<std::vector<std::string>> ApplySamplers(const std::string& list, SamplingOptions* options);

}  // namespace longspec::cli
