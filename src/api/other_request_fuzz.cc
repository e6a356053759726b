// SPDX-License-Identifier: Apache-2.0
//
// Any JSON as a request of the Messages, of the Responses and of Ollama's API: what is accepted can be run,
// and what is said about the rest can be sent.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/anthropic.h"
#include "api/apply_dialect.h"
#include "api/errors.h"
#include "api/fields.h"
#include "api/ollama.h"
#include "api/responses.h"
#include "api/shared_fields.h"
#include "json/json_text.h"

namespace {

using longspec::api::Error;
using longspec::api::Request;
using longspec::chat::ToolFormat;
using Json = nlohmann::ordered_json;

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

void Check(const Request& request) {
  Require(!request.generation.messages.empty() && request.generation.prompt.empty() &&
          request.generation.tokens.empty());
  Require(request.n == 1 && request.generation.n_logprobs == -1);
  for (const auto& message : request.generation.messages)
    Require(message.role == "system" || message.role == "user" || message.role == "assistant" ||
            message.role == "tool");
  for (const ToolFormat format :
       {ToolFormat::kHermes, ToolFormat::kTagged, ToolFormat::kLlama3, ToolFormat::kMistralList,
        ToolFormat::kMistral, ToolFormat::kHarmony, ToolFormat::kGeneric}) {
    Request told = request;
    const auto refused = longspec::api::ApplyTools({.tools = format, .thoughts_in_contents = true}, &told);
    Require(!refused ||
            (request.tools.offered() && (!request.grammar_field.empty() || format == ToolFormat::kTagged)));
    for (const auto& message : told.generation.messages)
      Require(message.more.empty() || Json::accept(message.more));
  }
}

void Check(const Error& error) {
  Require(!error.message.empty() && error.status_code >= 400 && error.status_code < 500);
  for (const auto& body :
       {longspec::api::ErrorBody(error), longspec::api::AnthropicErrorBody(error, Json::object())}) {
    const Json read = Json::parse(longspec::WriteJson(body));
    Require(read["error"]["message"].is_string() && read["error"]["type"].is_string());
  }
}

void CheckOllama(const Json& json) {
  using longspec::api::OllamaRoute;
  for (const OllamaRoute route : {OllamaRoute::kChat, OllamaRoute::kGenerate}) {
    (void)longspec::api::AsksNothing(route, json);
    for (const bool has_template : {false, true}) {
      const auto parsed =
          longspec::api::ParseOllamaRequest(route, json, longspec::api::OpenAiDefaults(), has_template);
      if (const auto* error = std::get_if<Error>(&parsed)) {
        Check(*error);
        continue;
      }
      const auto& request = std::get<Request>(parsed);
      Require(request.n == 1 && request.prompts.size() <= 1 && request.generation.n_logprobs == -1);
      if (!request.generation.messages.empty()) Check(request);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = longspec::api::ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (const auto* error = std::get_if<Error>(&body)) {
    Check(*error);
    return 0;
  }
  const Json& json = std::get<Json>(body);
  const longspec::api::RequestDefaults defaults = longspec::api::OpenAiDefaults();
  for (const auto parse : {longspec::api::ParseMessagesRequest, longspec::api::ParseCountTokensRequest,
                           longspec::api::ParseResponsesRequest}) {
    std::visit([](const auto& result) { Check(result); }, parse(json, defaults));
  }
  CheckOllama(json);
  return 0;
}
