// SPDX-License-Identifier: Apache-2.0
//
// Ollama's API: requests become those of api/openai.h, answers are lines of JSON. Pure functions.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "api/answer_form.h"
#include "api/errors.h"

namespace longspec::api {

enum class OllamaRoute : uint8_t { kChat, kGenerate };

// Whether the request asks for nothing, which clients send to have the model loaded.
bool AsksNothing(OllamaRoute route, const nlohmann::ordered_json& body);

// has_template: a prompt of kGenerate that is not `raw` is the message of a chat.
std::variant<Request, Error> ParseOllamaRequest(OllamaRoute route, const nlohmann::ordered_json& body,
                                                const RequestDefaults& defaults, bool has_template);

std::unique_ptr<AnswerForm> MakeOllamaForm(OllamaRoute route, FormParts parts);
// The answer where nothing was asked.
nlohmann::ordered_json LoadedJson(OllamaRoute route, const ResponseHead& head);

nlohmann::ordered_json OllamaErrorBody(const Error& error, const nlohmann::ordered_json& more = {});

// As Ollama writes times: 2026-11-27T20:15:00Z
std::string OllamaTime(int64_t seconds);

}  // namespace longspec::api
