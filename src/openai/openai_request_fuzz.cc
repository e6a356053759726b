// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a line of requests, as the body of a request and as a line of answers: what is accepted is in
// range, and what is said about the rest can be written as JSON and read again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "openai/batch_lines.h"
#include "openai/json.h"

namespace {

using longspec::openai::ApiError;
using longspec::openai::ApiRequest;
using Json = nlohmann::ordered_json;

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

void CheckRequest(const ApiRequest& request) {
  const longspec::GenerationRequest& generation = request.generation;
  const longspec::SamplingOptions& sampling = generation.sampling;
  Require(static_cast<int>(!generation.prompt.empty()) + static_cast<int>(!generation.messages.empty()) +
              static_cast<int>(!generation.tokens.empty()) + static_cast<int>(!request.prompts.empty()) +
              static_cast<int>(request.infill.has_value()) ==
          1);
  const bool llama = IsLlamas(request.endpoint);
  Require(generation.n_logprobs >= -1 && generation.n_logprobs <= longspec::openai::kMostLogprobs);
  for (const auto& prompt : request.prompts) {
    Require(!prompt.empty());
    for (const auto& part : prompt) Require(part.text.empty() != part.tokens.empty());
  }
  for (const auto* tokens : {&generation.stop_tokens, &generation.allowed_tokens}) {
    for (const int32_t token : *tokens) Require(token >= 0);
  }
  Require(generation.min_tokens >= 0 && generation.truncate_prompt_tokens >= -1);
  Require(generation.template_variables.empty() || Json::parse(generation.template_variables).is_object());
  for (const auto& [text, bias] : request.text_bias) Require(!std::isnan(bias));
  Require(request.n >= 1 && request.n <= longspec::openai::kMostChoices);
  Require(generation.n_predict >= -1);
  Require(sampling.temperature >= 0 && sampling.temperature <= (llama ? 100 : 2));
  Require(sampling.top_p >= 0 && sampling.top_p <= 1 && sampling.min_p >= 0 && sampling.min_p <= 1);
  Require(sampling.repeat_penalty > 0 && std::isfinite(sampling.repeat_penalty));
  Require(sampling.repeat_last_n >= -1 && sampling.top_k >= -1);
  for (const auto& [token, bias] : sampling.logit_bias) Require(token >= 0 && bias <= 100);
  for (const std::string& stop : generation.stop) Require(!stop.empty());
  for (const int32_t token : generation.tokens) Require(token >= 0);
}

void CheckError(const ApiError& error, const std::string& custom_id) {
  Require(!error.message.empty() && error.message.find('\n') == std::string::npos);
  const std::string line = longspec::openai::BatchErrorJson("1", custom_id, 5, error)
                               .dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto read = longspec::openai::ParseAnswerLine(line);
  Require(read.has_value() && read->custom_id == custom_id);
  Require(custom_id.empty() == (read->line_number == 5));
}

void Check(const std::variant<ApiRequest, ApiError>& request, const std::string& custom_id) {
  if (const auto* error = std::get_if<ApiError>(&request)) {
    CheckError(*error, custom_id);
  } else {
    CheckRequest(std::get<ApiRequest>(request));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using longspec::openai::Endpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const longspec::openai::RequestDefaults defaults = longspec::openai::OpenAiDefaults();
  const auto line = longspec::openai::ParseBatchLine(text, defaults);
  Check(line.request, line.custom_id);
  (void)longspec::openai::ParseAnswerLine(text);
  const auto body = longspec::openai::ParseJson(text);
  if (const auto* error = std::get_if<ApiError>(&body)) {
    CheckError(*error, "");
    return 0;
  }
  for (const Endpoint endpoint :
       {Endpoint::kChatCompletions, Endpoint::kCompletions, Endpoint::kLlamaCompletion, Endpoint::kInfill})
    Check(longspec::openai::ParseRequest(endpoint, std::get<Json>(body), defaults), "x");
  return 0;
}
