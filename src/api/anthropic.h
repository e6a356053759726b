// SPDX-License-Identifier: Apache-2.0
//
// Anthropic's Messages API. Pure functions but for the form, which counts events.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "api/answer_form.h"
#include "api/errors.h"
#include "api/request.h"

namespace longspec::api {

// Texts, thoughts and tools of the client; images and tools of Anthropic's servers are refused by name.
// Fields of our own and of llama.cpp work as in a chat.
std::variant<Request, Error> ParseMessagesRequest(const nlohmann::ordered_json& body,
                                                  const RequestDefaults& defaults);
// The same without max_tokens.
std::variant<Request, Error> ParseCountTokensRequest(const nlohmann::ordered_json& body,
                                                     const RequestDefaults& defaults);

// {"type": "error", "error": {"type", "message"}}
nlohmann::ordered_json AnthropicErrorBody(const Error& error, const nlohmann::ordered_json& more);

std::unique_ptr<AnswerForm> MakeAnthropicForm(FormParts parts);

}  // namespace longspec::api
