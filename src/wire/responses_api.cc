// SPDX-License-Identifier: Apache-2.0
#include "wire/responses_api.h"

#include <utility>

#include "openai/fields.h"
#include "openai/json.h"
#include "wire/errors.h"

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;
using openai::Answer;
using openai::ApiError;
using openai::Fields;

// Fields of this API alone, and those that a chat knows under another name.
constexpr const char* kOwnFields[] = {"input",          "instructions",      "max_output_tokens",
                                      "tools",          "tool_choice",       "text",
                                      "reasoning",      "include",           "previous_response_id",
                                      "conversation",   "background",        "truncation",
                                      "max_tool_calls", "top_logprobs",      "prompt",
                                      "stream_options", "context_management"};

bool IsText(const std::string& type) {
  return type == "input_text" || type == "output_text" || type == "text";
}

// A text, or parts of text.
std::string ContentOf(Fields& item, const std::string& place) {
  const nlohmann::ordered_json* content = item.Find("content");
  if (content == nullptr) {
    item.Missing("content");
    return {};
  }
  if (!content->is_array()) {
    std::string text;
    item.Text("content", &text);
    return text;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], place + ".content[" + std::to_string(i) + "]");
    std::string type, own;
    if (!part.Text("type", &type)) part.Missing("type");
    if (!IsText(type)) part.Fail("type", "is not supported: only texts are", "unsupported_value");
    if (!part.Text("text", &own)) part.Missing("text");
    if (part.error()) {
      item.Fail(*part.error());
      return {};
    }
    text += (text.empty() ? "" : "\n") + own;
  }
  return text;
}

void ParseItem(const nlohmann::ordered_json& json, const std::string& place, Fields& fields,
               nlohmann::ordered_json* messages) {
  Fields item(json, place);
  std::string type = "message", role;
  item.Text("type", &type);
  if (type == "reasoning") return;
  if (type != "message")
    item.Fail("type", "\"" + type + "\" is not supported: only messages are", "unsupported_value");
  if (!item.Text("role", &role)) item.Missing("role");
  std::string text;
  if (!item.error()) text = ContentOf(item, place);
  if (item.error()) return fields.Fail(*item.error());
  messages->push_back({{"role", role}, {"content", std::move(text)}});
}

void ParseInput(Fields& fields, nlohmann::ordered_json* messages) {
  const size_t n_before = messages->size();
  const nlohmann::ordered_json* input = fields.Find("input");
  if (input == nullptr) return fields.Missing("input");
  if (input->is_string()) {
    messages->push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    for (size_t i = 0; i < input->size(); ++i)
      ParseItem((*input)[i], "input[" + std::to_string(i) + "]", fields, messages);
  } else {
    fields.Fail("input", "must be a text or a list of items", "invalid_type");
  }
  if (messages->size() == n_before) fields.Fail("input", "must hold a message", "invalid_value");
}

void ParseTools(Fields& fields) {
  const nlohmann::ordered_json* tools = fields.Find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return fields.Fail("tools", "must be a list", "invalid_type");
  for (const auto& tool : *tools) {
    const bool is_function =
        tool.is_object() && (tool.value("type", nlohmann::ordered_json()) == "function" ||
                             tool.value("type", nlohmann::ordered_json()) == "custom");
    if (is_function) return fields.Fail("tools", "is not supported", "unsupported_parameter");
  }
}

class ResponsesForm final : public AnswerForm {
 public:
  ResponsesForm(FormParts parts, nlohmann::ordered_json instructions)
      : head_(std::move(parts.head)),
        generation_(std::move(parts.request.generation)),
        instructions_(std::move(instructions)) {}

  std::string Whole(std::span<const Answer> answers) override {
    return openai::DumpJson(Response(&answers[0].result)) + "\n";
  }

  std::string OnStart(int, int, int) override {
    std::string events = Numbered("response.created", {{"response", Response(nullptr)}});
    events += Numbered("response.in_progress", {{"response", Response(nullptr)}});
    events += Numbered("response.output_item.added", {{"output_index", 0}, {"item", Item("in_progress")}});
    return events + Numbered("response.content_part.added", OfPart({{"part", Part("")}}));
  }

  std::string OnProgress(int, const Progress&) override { return {}; }

  std::string OnPiece(const Piece& piece) override {
    if (piece.text.empty()) return {};
    return Numbered("response.output_text.delta",
                    OfPart({{"delta", piece.text}, {"logprobs", Json::array()}}));
  }

  std::string OnAnswerEnd(int, const Answer& answer) override {
    const std::string& text = answer.result.text;
    Json item = Item("completed");
    item["content"].push_back(Part(text));
    const bool whole = answer.result.finish_reason == FinishReason::kStop;
    std::string events =
        Numbered("response.output_text.done", OfPart({{"text", text}, {"logprobs", Json::array()}}));
    events += Numbered("response.content_part.done", OfPart({{"part", Part(text)}}));
    events += Numbered("response.output_item.done", {{"output_index", 0}, {"item", std::move(item)}});
    return events + Numbered(whole ? "response.completed" : "response.incomplete",
                             {{"response", Response(&answer.result)}});
  }

  std::string OnEnd(std::span<const Answer>) override { return {}; }

  std::string OnError(const ApiError& error) override {
    return Numbered("error", {{"code", std::to_string(error.status_code)},
                              {"message", error.message},
                              {"param", nullptr},
                              {"error", ErrorBody(error)["error"]}});
  }

 private:
  std::string Numbered(const char* type, Json fields) {
    Json event = {{"type", type}, {"sequence_number", n_events_++}};
    for (const auto& [name, value] : fields.items()) event[name] = value;
    return NamedEvent(type, event);
  }

  Json OfPart(Json fields) const {
    fields["item_id"] = "msg_" + head_.id;
    fields["output_index"] = 0;
    fields["content_index"] = 0;
    return fields;
  }

  static Json Part(const std::string& text) {
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  Json Item(const char* status) const {
    return {{"id", "msg_" + head_.id},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", Json::array()}};
  }

  // Null: it is in the making.
  Json Response(const GenerationResult* result) const {
    const bool whole = result != nullptr && result->finish_reason == FinishReason::kStop;
    const SamplingOptions& sampling = generation_.sampling;
    Json json = {
        {"id", "resp_" + head_.id},
        {"object", "response"},
        {"created_at", head_.created},
        {"status", result == nullptr ? "in_progress"
                   : whole           ? "completed"
                                     : "incomplete"},
        {"error", nullptr},
        {"incomplete_details", nullptr},
        {"instructions", instructions_},
        {"max_output_tokens", generation_.n_predict < 0 ? Json(nullptr) : Json(generation_.n_predict)},
        {"model", head_.model},
        {"output", Json::array()},
        {"parallel_tool_calls", true},
        {"previous_response_id", nullptr},
        {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
        {"store", false},
        {"temperature", sampling.temperature},
        {"text", {{"format", {{"type", "text"}}}}},
        {"tool_choice", "auto"},
        {"tools", Json::array()},
        {"top_p", sampling.top_p},
        {"truncation", "disabled"},
        {"usage", nullptr},
        {"user", nullptr},
        {"metadata", Json::object()}};
    if (result == nullptr) return json;
    if (!whole) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    Json item = Item(whole ? "completed" : "incomplete");
    item["content"].push_back(Part(result->text));
    json["output"].push_back(std::move(item));
    const Timings& t = result->timings;
    const int64_t input = t.cache_n + t.prompt_n;
    json["usage"] = {{"input_tokens", input},
                     {"input_tokens_details", {{"cached_tokens", t.cache_n}}},
                     {"output_tokens", t.predicted_n},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", input + t.predicted_n}};
    json["timings"] = openai::TimingsJson(t);
    return json;
  }

  const openai::ResponseHead head_;
  const GenerationRequest generation_;
  const nlohmann::ordered_json instructions_;
  int64_t n_events_ = 0;
};

}  // namespace

std::variant<ResponsesRequest, ApiError> ParseResponsesRequest(const nlohmann::ordered_json& body,
                                                               const GenerationRequest& defaults) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  ResponsesRequest request;
  auto messages = nlohmann::ordered_json::array();
  std::string instructions;
  if (fields.Text("instructions", &instructions)) {
    request.instructions = instructions;
    if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  }
  ParseInput(fields, &messages);
  ParseTools(fields);
  fields.Only("previous_response_id", "[]");
  fields.Only("conversation", "[]");
  fields.Only("prompt", "[]");
  fields.Only("background", "[false]");
  fields.Only("truncation", R"(["disabled"])");
  fields.Only("tool_choice", R"(["auto", "none"])");
  fields.Only("top_logprobs", "[0]");
  if (const auto* text = fields.Find("text"); text != nullptr) {
    Fields inside(*text, "text");
    inside.Only("format", R"([{"type": "text"}])");
    if (inside.error()) fields.Fail(*inside.error());
  }
  int limit = 0;
  const bool limited = fields.Integer("max_output_tokens", 1, 1 << 30, &limit);
  if (fields.error()) return *fields.error();
  nlohmann::ordered_json chat = body;
  for (const char* name : kOwnFields) chat.erase(name);
  for (const char* name : {"n", "n_cmpl", "logprobs", "n_probs"}) {
    if (chat.contains(name)) {
      return ApiError{.message = std::string(name) + " is not supported here",
                      .param = name,
                      .code = "unsupported_parameter"};
    }
  }
  chat["messages"] = std::move(messages);
  if (limited) chat["max_tokens"] = limit;
  auto parsed = openai::ParseRequest(openai::Endpoint::kChatCompletions, chat, defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  request.chat = std::get<openai::ApiRequest>(std::move(parsed));
  return request;
}

std::unique_ptr<AnswerForm> MakeResponsesForm(FormParts parts, nlohmann::ordered_json instructions) {
  return std::make_unique<ResponsesForm>(std::move(parts), std::move(instructions));
}

}  // namespace longspec::wire
