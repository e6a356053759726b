// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's lists of samplers, which say which ones run. Here they always run in one order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec::openai {

// Those that run where nothing is said, in the order in which they run.
inline constexpr std::string_view kSamplers = "penalties;top_k;top_p;min_p;temperature";
// All there are.
inline constexpr std::string_view kAllSamplers = "penalties;top_k;top_p;min_p;infill;temperature";

// What a list asks for and does not get.
struct SamplersLeft {
  std::vector<std::string> missing = {};  // samplers of llama.cpp that do not exist here
  bool in_order = true;                   // false: the order is not kept
};

// Turns off what `names` leave out, and infill on where it is named. The error: a name that llama.cpp does
// not have either.
Result<SamplersLeft> KeepSamplers(std::span<const std::string> names, SamplingOptions* options);

// The names of llama.cpp's letters ("kpmt"). The error: a letter that it does not have.
Result<std::vector<std::string>> SamplersOfLetters(std::string_view letters);

}  // namespace longspec::openai
