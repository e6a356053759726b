// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a line of requests, as the body of a request and as a line of answers: what is accepted is in
// range, and what is said about the rest can be written as JSON and read again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/batch_lines.h"
#include "api/fields.h"
#include "api/llama.h"
#include "api/openai.h"
#include "api/shared_fields.h"

namespace {

using longspec::api::Error;
using longspec::api::Request;
using Json = nlohmann::ordered_json;

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

void CheckRequest(const Request& request) {
  const longspec::GenerationRequest& generation = request.generation;
  const longspec::SamplingOptions& sampling = generation.sampling;
  Require(static_cast<int>(!generation.prompt.empty()) + static_cast<int>(!generation.messages.empty()) +
              static_cast<int>(!generation.tokens.empty()) + static_cast<int>(!request.prompts.empty()) +
              static_cast<int>(request.infill.has_value()) ==
          1);
  const bool llama = IsLlamas(request.endpoint);
  Require(generation.n_logprobs >= -1 && generation.n_logprobs <= longspec::api::kMostLogprobs);
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
  Require(request.n >= 1 && request.n <= longspec::api::kMostChoices);
  Require(generation.n_predict >= -1);
  Require(sampling.temperature >= 0 && sampling.temperature <= (llama ? 100 : 2));
  Require(sampling.top_p >= 0 && sampling.top_p <= 1 && sampling.min_p >= 0 && sampling.min_p <= 1);
  Require(sampling.repeat_penalty > 0 && std::isfinite(sampling.repeat_penalty));
  Require(sampling.repeat_last_n >= -1 && sampling.top_k >= -1);
  for (const auto& [token, bias] : sampling.logit_bias) Require(token >= 0 && bias <= 100);
  for (const std::string& stop : generation.stop) Require(!stop.empty());
  for (const int32_t token : generation.tokens) Require(token >= 0);
}

void CheckError(const Error& error, const std::string& custom_id) {
  Require(!error.message.empty() && error.message.find('\n') == std::string::npos);
  const std::string line = longspec::api::BatchErrorJson("1", custom_id, 5, error)
                               .dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto read = longspec::api::ParseAnswerLine(line);
  Require(read.has_value() && read->custom_id == custom_id);
  Require(custom_id.empty() == (read->line_number == 5));
}

void Check(const std::variant<Request, Error>& request, const std::string& custom_id) {
  if (const auto* error = std::get_if<Error>(&request)) {
    CheckError(*error, custom_id);
  } else {
    CheckRequest(std::get<Request>(request));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const longspec::api::RequestDefaults defaults = longspec::api::OpenAiDefaults();
  const auto line = longspec::api::ParseBatchLine(text, defaults);
  Check(line.request, line.custom_id);
  (void)longspec::api::ParseAnswerLine(text);
  const auto body = longspec::api::ParseJson(text);
  if (const auto* error = std::get_if<Error>(&body)) {
    CheckError(*error, "");
    return 0;
  }
  for (const auto parse : {longspec::api::ParseChatRequest, longspec::api::ParseCompletionRequest,
                           longspec::api::ParseLlamaRequest, longspec::api::ParseInfillRequest})
    Check(parse(std::get<Json>(body), defaults), "x");
  return 0;
}
