// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's Responses API. Nothing is stored, so a request brings its whole conversation.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "api/answer_form.h"
#include "api/errors.h"
#include "api/request.h"

namespace longspec::api {

// Texts and functions; images and files are refused by name. Tools that are no functions, which clients offer
// to any model, are passed over. Fields of our own and of llama.cpp work as in a chat.
std::variant<Request, Error> ParseResponsesRequest(const nlohmann::ordered_json& body,
                                                   const RequestDefaults& defaults);

std::unique_ptr<AnswerForm> MakeResponsesForm(FormParts parts);

}  // namespace longspec::api
