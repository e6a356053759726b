// SPDX-License-Identifier: Apache-2.0
//
// The fields of a request that say how tokens are chosen and where an answer ends; llama.cpp's lists of
// samplers, which say which ones run. Here they always run in one order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "api/request.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec::api {

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

// temperature and its kin, penalties, logit_bias, seed, samplers.
void ParseSampling(Endpoint endpoint, Fields& fields, Request* request);
// max_tokens and its other names, min_tokens, truncate_prompt_tokens.
void ParseLimits(Endpoint endpoint, Fields& fields, GenerationRequest* request);
// stop, stop_token_ids, include_stop_str_in_output, ignore_eos.
void ParseEnds(Fields& fields, GenerationRequest* request);
// allowed_token_ids, bad_words.
void ParseTokenRules(Fields& fields, GenerationRequest* request);

}  // namespace longspec::api
