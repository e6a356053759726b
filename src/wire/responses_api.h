// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's Responses API: requests become chat requests, answers take its form. Nothing is stored, so a
// request brings its whole conversation.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "openai/errors.h"
#include "openai/requests.h"
#include "wire/answer_form.h"

namespace longspec::wire {

struct ResponsesRequest {
  openai::ApiRequest chat;
  nlohmann::ordered_json repeated;  // fields that the response repeats, as they were given
};

// Texts and functions; images and files are refused by name. Tools that are no functions, which clients offer
// to any model, are passed over.
std::variant<ResponsesRequest, openai::ApiError> ParseResponsesRequest(
    const nlohmann::ordered_json& body, const openai::RequestDefaults& defaults);

std::unique_ptr<AnswerForm> MakeResponsesForm(FormParts parts, nlohmann::ordered_json repeated);

}  // namespace longspec::wire
