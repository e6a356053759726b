// SPDX-License-Identifier: Apache-2.0
//
// Fields of a request that say what text has a hole: llama.cpp's of /infill, and the suffix of a completion.
#pragma once

#include <nlohmann/json.hpp>
#include <variant>

#include "openai/errors.h"
#include "openai/fields.h"
#include "openai/requests.h"

namespace longspec::openai {

inline constexpr size_t kMostChunks = 4096;  // of input_extra

// input_prefix and input_suffix, which have to be there, input_extra and prompt.
void ParseInfill(Fields& fields, ApiRequest* request);
// Of a text completion: with a suffix that is not empty there is a hole between the prompt, one text that may
// be empty, and it. False: there is none, and the prompt has not been read.
bool ParseSuffix(Fields& fields, ApiRequest* request);

// Mistral's: a text completion with a hole behind the prompt, also without a suffix, and with no limit where
// none is given. Answers have the form of a chat's.
std::variant<ApiRequest, ApiError> ParseFimRequest(const nlohmann::ordered_json& body,
                                                   const RequestDefaults& defaults);

}  // namespace longspec::openai
