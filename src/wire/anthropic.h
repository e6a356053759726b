// SPDX-License-Identifier: Apache-2.0
//
// Anthropic's Messages API: requests become chat requests, answers take its form. Pure functions but for the
// form, which counts events.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "openai/errors.h"
#include "openai/requests.h"
#include "wire/answer_form.h"

namespace longspec::wire {

// Texts, thoughts and tools of the client; images and tools of Anthropic's servers are refused by name.
// Fields of our own and of llama.cpp work as in a chat. `count_only`: for count_tokens, which has no
// max_tokens.
std::variant<openai::ApiRequest, openai::ApiError> ParseMessagesRequest(
    const nlohmann::ordered_json& body, const openai::RequestDefaults& defaults, bool count_only);

// {"type": "error", "error": {"type", "message"}}
nlohmann::ordered_json AnthropicErrorBody(const openai::ApiError& error, const nlohmann::ordered_json& more);

std::unique_ptr<AnswerForm> MakeAnthropicForm(FormParts parts);

}  // namespace longspec::wire
