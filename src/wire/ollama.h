// SPDX-License-Identifier: Apache-2.0
//
// Ollama's API: requests become those of openai/requests.h, answers are lines of JSON. Pure functions.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "openai/errors.h"
#include "openai/requests.h"
#include "wire/answer_form.h"

namespace longspec::wire {

enum class OllamaRoute : uint8_t { kChat, kGenerate };

// Whether the request asks for nothing, which clients send to have the model loaded.
bool AsksNothing(OllamaRoute route, const nlohmann::ordered_json& body);

// has_template: a prompt of kGenerate that is not `raw` is the message of a chat.
std::variant<openai::ApiRequest, openai::ApiError> ParseOllamaRequest(OllamaRoute route,
                                                                      const nlohmann::ordered_json& body,
                                                                      const openai::RequestDefaults& defaults,
                                                                      bool has_template);

std::unique_ptr<AnswerForm> MakeOllamaForm(OllamaRoute route, FormParts parts);
// The answer where nothing was asked.
nlohmann::ordered_json LoadedJson(OllamaRoute route, const openai::ResponseHead& head);

nlohmann::ordered_json OllamaErrorBody(const openai::ApiError& error,
                                       const nlohmann::ordered_json& more = {});

// As Ollama writes times: 2026-11-27T20:15:00Z
std::string OllamaTime(int64_t seconds);

}  // namespace longspec::wire
