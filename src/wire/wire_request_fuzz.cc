// SPDX-License-Identifier: Apache-2.0
//
// Any JSON as a request of the Messages, of the Responses and of Ollama's API: what is accepted can be run,
// and what is said about the rest can be sent.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "openai/json.h"
#include "openai/tools.h"
#include "wire/anthropic.h"
#include "wire/errors.h"
#include "wire/ollama.h"
#include "wire/responses_api.h"

namespace {

using longspec::chat::ToolFormat;
using longspec::openai::ApiError;
using longspec::openai::ApiRequest;
using Json = nlohmann::ordered_json;

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

void Check(const ApiRequest& request) {
  Require(!request.generation.messages.empty() && request.generation.prompt.empty() &&
          request.generation.tokens.empty());
  Require(request.n == 1 && request.generation.n_logprobs == -1);
  for (const auto& message : request.generation.messages)
    Require(message.role == "system" || message.role == "user" || message.role == "assistant" ||
            message.role == "tool");
  for (const ToolFormat format :
       {ToolFormat::kHermes, ToolFormat::kTagged, ToolFormat::kLlama3, ToolFormat::kMistralList,
        ToolFormat::kMistral, ToolFormat::kHarmony, ToolFormat::kGeneric}) {
    ApiRequest told = request;
    const auto refused = longspec::openai::ApplyTools({.tools = format, .thoughts_in_contents = true}, &told);
    Require(!refused ||
            (request.tools.offered() && (!request.grammar_field.empty() || format == ToolFormat::kTagged)));
    for (const auto& message : told.generation.messages)
      Require(message.more.empty() || Json::accept(message.more));
  }
}

void Check(const ApiError& error) {
  Require(!error.message.empty() && error.status_code >= 400 && error.status_code < 500);
  for (const auto& body :
       {longspec::wire::ErrorBody(error), longspec::wire::AnthropicErrorBody(error, Json::object())}) {
    const Json read = Json::parse(longspec::openai::DumpJson(body));
    Require(read["error"]["message"].is_string() && read["error"]["type"].is_string());
  }
}

void CheckOllama(const Json& json) {
  using longspec::wire::OllamaRoute;
  for (const OllamaRoute route : {OllamaRoute::kChat, OllamaRoute::kGenerate}) {
    (void)longspec::wire::AsksNothing(route, json);
    for (const bool has_template : {false, true}) {
      const auto parsed =
          longspec::wire::ParseOllamaRequest(route, json, longspec::openai::OpenAiDefaults(), has_template);
      if (const auto* error = std::get_if<ApiError>(&parsed)) {
        Check(*error);
        continue;
      }
      const auto& request = std::get<ApiRequest>(parsed);
      Require(request.n == 1 && request.prompts.size() <= 1 && request.generation.n_logprobs == -1);
      if (!request.generation.messages.empty()) Check(request);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = longspec::openai::ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (const auto* error = std::get_if<ApiError>(&body)) {
    Check(*error);
    return 0;
  }
  const Json& json = std::get<Json>(body);
  const longspec::openai::RequestDefaults defaults = longspec::openai::OpenAiDefaults();
  for (const bool count_only : {false, true}) {
    const auto messages = longspec::wire::ParseMessagesRequest(json, defaults, count_only);
    std::visit([](const auto& result) { Check(result); }, messages);
  }
  CheckOllama(json);
  const auto responses = longspec::wire::ParseResponsesRequest(json, defaults);
  if (const auto* error = std::get_if<ApiError>(&responses)) {
    Check(*error);
  } else {
    Check(std::get<longspec::wire::ResponsesRequest>(responses).chat);
  }
  return 0;
}
