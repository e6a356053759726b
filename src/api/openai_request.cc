// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "api/fields.h"
#include "api/messages.h"
#include "api/openai.h"
#include "api/prompt_fields.h"
#include "api/shared_fields.h"
#include "api/tools.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// With a suffix that is not empty there is a hole between the prompt, one text that may be empty, and it.
// False: there is none, and the prompt has not been read.
bool ParseSuffix(Fields& fields, Request* request) {
  InfillText text;
  fields.Text("suffix", &text.suffix);
  if (text.suffix.empty()) return false;
  if (request->wishes.echo) fields.Fail("echo", "is not supported beside suffix", "unsupported_parameter");
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) fields.Missing("prompt");
  if (prompt != nullptr && !prompt->is_string())
    fields.Fail("prompt", "must be one text where there is a suffix, not " + Describe(*prompt),
                "invalid_type");
  if (!fields.error()) text.prefix = prompt->get<std::string>();
  request->infill = std::move(text);
  return true;
}

}  // namespace

std::variant<Request, Error> ParseChat(Fields& fields, const RequestDefaults& defaults) {
  Request request = ParseSharedFields(Endpoint::kChatCompletions, fields, defaults);
  ParseTools(fields, &request.tools);
  request.generation.messages = ParseMessages(fields);
  ParseChatEnd(fields, &request);
  return Parsed(fields, std::move(request));
}

std::variant<Request, Error> ParseCompletion(Fields& fields, const RequestDefaults& defaults) {
  Request request = ParseSharedFields(Endpoint::kCompletions, fields, defaults);
  if (!ParseSuffix(fields, &request)) ParsePrompts(fields, &request);
  return Parsed(fields, std::move(request));
}

std::variant<Request, Error> ParseChatRequest(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, "");
  return ParseChat(fields, defaults);
}

std::variant<Request, Error> ParseCompletionRequest(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, "");
  return ParseCompletion(fields, defaults);
}

std::variant<Request, Error> ParseFimRequest(const Json& body, const RequestDefaults& defaults) {
  auto parsed = ParseCompletionRequest(body, defaults);
  if (std::holds_alternative<Error>(parsed)) return parsed;
  Request& request = std::get<Request>(parsed);
  Fields fields(body, "");
  if (!request.infill) {
    if (!request.prompts.empty() || !request.generation.tokens.empty()) {
      fields.Fail("prompt", "must be one text", "invalid_type");
      return *fields.error();
    }
    request.infill = InfillText{.prefix = std::exchange(request.generation.prompt, {})};
  }
  const Json* limit = fields.Find("max_tokens");
  if (limit == nullptr) request.generation.n_predict = defaults.generation.n_predict;
  request.endpoint = Endpoint::kChatCompletions;
  return parsed;
}

}  // namespace longspec::api
