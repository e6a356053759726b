// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/llama.h"
#include "api/prompt_fields.h"
#include "api/shared_fields.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostChunks = 4096;  // of input_extra

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

// input_prefix and input_suffix, which have to be there, input_extra and prompt.
void ParseInfill(Fields& fields, Request* request) {
  InfillText& text = request->infill.emplace();
  if (!fields.Text("input_prefix", &text.prefix)) fields.Missing("input_prefix");
  if (!fields.Text("input_suffix", &text.suffix)) fields.Missing("input_suffix");
  fields.Text("prompt", &text.prompt);
  ParseChunks(fields, &text.chunks);
}

void ParseResponseFields(Fields& fields, AnswerWishes* wishes) {
  const Json* kept = fields.Find("response_fields");
  if (kept == nullptr) return;
  if (!kept->is_array() || !std::ranges::all_of(*kept, [](const Json& name) { return name.is_string(); }))
    return fields.Fail("response_fields", "must be a list of texts", "invalid_type");
  wishes->response_fields = kept->get<std::vector<std::string>>();
}

}  // namespace

std::variant<Request, Error> ParseLlamaRequest(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, "");
  Request request = ParseSharedFields(Endpoint::kLlamaCompletion, fields, defaults);
  ParseResponseFields(fields, &request.wishes);
  ParsePrompts(fields, &request);
  return Parsed(fields, std::move(request));
}

std::variant<Request, Error> ParseInfillRequest(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, "");
  Request request = ParseSharedFields(Endpoint::kInfill, fields, defaults);
  ParseResponseFields(fields, &request.wishes);
  ParseInfill(fields, &request);
  return Parsed(fields, std::move(request));
}

}  // namespace longspec::api
