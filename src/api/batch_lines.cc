// SPDX-License-Identifier: Apache-2.0
#include "api/batch_lines.h"

#include <algorithm>
#include <utility>

#include "api/fields.h"
#include "api/openai.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// Answers are our own, and n of them make a long line.
constexpr JsonLimits kAnswerLimits = {.bytes = size_t{1} << 30};

constexpr std::string_view kAnswerBegins = R"({"id":"batch_req_)";  // as a compact dump writes it

void ParseCustomId(Fields& fields, std::string* custom_id) {
  std::string id;
  if (!fields.Text("custom_id", &id)) return fields.Missing("custom_id");
  if (fields.error()) return;
  if (id.empty() || id.size() > kMaxCustomIdBytes) {
    return fields.Fail("custom_id", "must have from 1 to " + std::to_string(kMaxCustomIdBytes) + " bytes",
                       "invalid_value");
  }
  *custom_id = std::move(id);
}

bool ParseIsChat(Fields& fields) {
  std::string method, url;
  if (!fields.Text("method", &method)) fields.Missing("method");
  if (method != "POST") fields.Fail("method", "must be \"POST\"", "invalid_value");
  if (!fields.Text("url", &url)) fields.Missing("url");
  if (url == kCompletionsUrl) return false;
  if (url != kChatCompletionsUrl) {
    fields.Fail(
        "url",
        "must be \"" + std::string(kChatCompletionsUrl) + "\" or \"" + std::string(kCompletionsUrl) + "\"",
        "invalid_url");
  }
  return true;
}

std::variant<Request, Error> ParseBody(Fields& fields, const RequestDefaults& defaults) {
  const bool is_chat = ParseIsChat(fields);
  const Json* body = fields.Find("body");
  if (body == nullptr) fields.Missing("body");
  if (fields.error()) return *fields.error();
  auto request = is_chat ? ParseChatRequest(*body, defaults) : ParseCompletionRequest(*body, defaults);
  if (const auto* parsed = std::get_if<Request>(&request)) {
    const char* refused = parsed->wishes.stream                 ? "stream"
                          : parsed->generation.n_logprobs >= 0  ? "logprobs"
                          : parsed->wishes.return_tokens        ? "return_tokens"
                          : parsed->wishes.return_token_source  ? "return_token_source"
                          : parsed->wishes.echo                 ? "echo"
                          : parsed->wishes.t_max_predict_ms > 0 ? "t_max_predict_ms"
                          : parsed->infill                      ? "suffix"
                          : !parsed->text_bias.empty()          ? "logit_bias of texts"
                          : !parsed->prompts.empty()            ? "prompt of several parts"
                                                                : nullptr;
    if (refused != nullptr) {
      return Error{.message = std::string(refused) + " is not supported in a batch",
                   .param = refused,
                   .code = "unsupported_parameter"};
    }
  }
  return request;
}

}  // namespace

BatchLine ParseBatchLine(std::string_view line, const RequestDefaults& defaults) {
  auto json = ParseJson(line);
  if (auto* error = std::get_if<Error>(&json)) return {"", std::move(*error)};
  const Json& object = std::get<Json>(json);
  Fields fields(object, "");
  BatchLine parsed;
  ParseCustomId(fields, &parsed.custom_id);
  if (fields.error()) {
    parsed.request = *fields.error();
  } else {
    parsed.request = ParseBody(fields, defaults);
  }
  return parsed;
}

Json BatchAnswerJson(const std::string& id, const std::string& custom_id, Json body) {
  return {{"id", "batch_req_" + id},
          {"custom_id", custom_id},
          {"response", {{"status_code", 200}, {"request_id", "req_" + id}, {"body", std::move(body)}}},
          {"error", nullptr}};
}

Json BatchErrorJson(const std::string& id, const std::string& custom_id, int64_t line_number,
                    const Error& error) {
  Json json = {{"id", "batch_req_" + id}, {"custom_id", nullptr}, {"response", nullptr}};
  if (!custom_id.empty()) {
    json["custom_id"] = custom_id;
    json["response"] = {{"status_code", error.status_code},
                        {"request_id", "req_" + id},
                        {"body", {{"error", ErrorJson(error)}}}};
  }
  json["error"] = ErrorJson(error);
  json["error"]["line"] = line_number;
  return json;
}

std::optional<AnsweredRequest> ParseAnswerLine(std::string_view line) {
  auto json = ParseJson(line, kAnswerLimits);
  const auto* object = std::get_if<Json>(&json);
  if (object == nullptr || !object->is_object() || !object->contains("response")) return std::nullopt;
  const auto id = object->find("custom_id");
  if (id == object->end()) return std::nullopt;
  if (id->is_string()) return AnsweredRequest{.custom_id = id->get<std::string>()};
  const auto error = object->find("error");
  if (!id->is_null() || error == object->end() || !error->is_object()) return std::nullopt;
  const auto number = error->find("line");
  if (number == error->end() || !number->is_number_integer()) return std::nullopt;
  return AnsweredRequest{.line_number = number->get<int64_t>()};
}

bool MayBeginAnswerLine(std::string_view bytes) {
  return bytes.starts_with(kAnswerBegins) || kAnswerBegins.starts_with(bytes);
}

}  // namespace longspec::api
