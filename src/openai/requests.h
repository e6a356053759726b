// SPDX-License-Identifier: Apache-2.0
//
// Requests for chat and text completions in the form of OpenAI's API, with the sampling fields that llama.cpp
// and vLLM add: top_k, min_p, repeat_penalty (repetition_penalty), repeat_last_n, ignore_eos. Every field
// that OpenAI knows is honoured, refused by name, or changes nothing here (user, metadata, store,
// service_tier, what speaks of caches, prediction). Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "longspec/generation.h"
#include "openai/errors.h"
#include "openai/tools.h"

namespace longspec::openai {

enum class Endpoint : uint8_t { kChatCompletions, kCompletions };

inline constexpr std::string_view kChatCompletionsUrl = "/v1/chat/completions";
inline constexpr std::string_view kCompletionsUrl = "/v1/completions";

inline constexpr int kMostChoices = 128;             // of `n`
inline constexpr size_t kMostStopStrings = 4;        // of `stop`
inline constexpr int kDefaultCompletionTokens = 16;  // of a text completion that does not say max_tokens

struct ApiRequest {
  Endpoint endpoint = Endpoint::kChatCompletions;
  std::string model;  // as asked for; may be empty
  GenerationRequest generation;
  ToolUse tools;  // ApplyTools (openai/tools.h) tells the generation of them
  int n = 1;      // answers
  bool stream = false;
  std::vector<std::string> unknown;  // fields that were passed over, at most 8
};

// What a request means that says nothing: temperature 1 and no filters.
GenerationRequest DefaultRequest();

// `body` is the request's JSON. `defaults` is what its fields replace, one by one; of its prompt nothing is
// used. Its n_predict -1 means OpenAI's defaults: no limit in a chat, kDefaultCompletionTokens otherwise.
std::variant<ApiRequest, ApiError> ParseRequest(Endpoint endpoint, const nlohmann::ordered_json& body,
                                                const GenerationRequest& defaults);

}  // namespace longspec::openai
