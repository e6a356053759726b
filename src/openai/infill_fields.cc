// SPDX-License-Identifier: Apache-2.0
#include "openai/infill_fields.h"

#include <string>
#include <utility>

#include "openai/json.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

InfillChunk ParseChunk(const Json& value, const std::string& place, Fields& fields) {
  Fields chunk(value, place);
  InfillChunk parsed;
  if (!chunk.Text("text", &parsed.text)) chunk.Missing("text");
  chunk.Text("filename", &parsed.filename);
  if (chunk.error()) fields.Fail(*chunk.error());
  return parsed;
}

void ParseChunks(Fields& fields, std::vector<InfillChunk>* chunks) {
  const Json* value = fields.Find("input_extra");
  if (value == nullptr) return;
  if (!value->is_array() || value->size() > kMostChunks) {
    return fields.Fail("input_extra",
                       "must be a list of up to " + std::to_string(kMostChunks) +
                           R"( objects {"filename": text, "text": text})",
                       "invalid_type");
  }
  for (const Json& chunk : *value) {
    const std::string place = "input_extra[" + std::to_string(chunks->size()) + "]";
    chunks->push_back(ParseChunk(chunk, place, fields));
    if (fields.error()) return;
  }
}

}  // namespace

void ParseInfill(Fields& fields, ApiRequest* request) {
  InfillText& text = request->infill.emplace();
  if (!fields.Text("input_prefix", &text.prefix)) fields.Missing("input_prefix");
  if (!fields.Text("input_suffix", &text.suffix)) fields.Missing("input_suffix");
  fields.Text("prompt", &text.prompt);
  ParseChunks(fields, &text.chunks);
}

bool ParseSuffix(Fields& fields, ApiRequest* request) {
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

std::variant<ApiRequest, ApiError> ParseFimRequest(const Json& body, const RequestDefaults& defaults) {
  auto parsed = ParseRequest(Endpoint::kCompletions, body, defaults);
  if (std::holds_alternative<ApiError>(parsed)) return parsed;
  ApiRequest& request = std::get<ApiRequest>(parsed);
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

}  // namespace longspec::openai
