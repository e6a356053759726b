// SPDX-License-Identifier: Apache-2.0
#include "wire/anthropic.h"

#include <string>
#include <utility>

#include "openai/fields.h"
#include "openai/json.h"
#include "openai/messages.h"
#include "wire/errors.h"

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;
using openai::Answer;
using openai::ApiError;
using openai::Fields;

// Claude Code's first block of a system prompt changes with every call, so that nothing after it would be
// known from before (llama.cpp#20623). It is no instruction.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// Fields of this API alone.
constexpr const char* kOwnFields[] = {"system",        "messages",      "stop_sequences",     "thinking",
                                      "tools",         "tool_choice",   "metadata",           "service_tier",
                                      "container",     "mcp_servers",   "context_management", "output_config",
                                      "output_format", "cache_control", "inference_geo",      "speed"};

void AddMessage(const char* role, std::string text, nlohmann::ordered_json* messages) {
  messages->push_back({{"role", role}, {"content", std::move(text)}});
}

void ParseSystem(Fields& fields, const nlohmann::ordered_json& body, nlohmann::ordered_json* messages) {
  const nlohmann::ordered_json* system = fields.Find("system");
  if (system == nullptr) return;
  nlohmann::ordered_json without = body;
  if (system->is_array() && !system->empty() && system->front().is_object()) {
    const auto text = system->front().find("text");
    const bool is_billing = text != system->front().end() && text->is_string() &&
                            text->get_ref<const std::string&>().starts_with(kBillingHeader);
    if (is_billing) without["system"].erase(0);
    if (without["system"].empty()) return;
  }
  Fields rest(without, "");
  std::string text;
  openai::ParseTextContent(rest, "system", &text);
  if (rest.error()) return fields.Fail(*rest.error());
  if (!text.empty()) AddMessage("system", std::move(text), messages);
}

void ParseTurns(Fields& fields, nlohmann::ordered_json* messages) {
  const nlohmann::ordered_json* turns = fields.Find("messages");
  if (turns == nullptr) return fields.Missing("messages");
  if (!turns->is_array() || turns->empty())
    return fields.Fail("messages", "must be a list of messages", "invalid_type");
  for (size_t i = 0; i < turns->size(); ++i) {
    Fields turn((*turns)[i], "messages[" + std::to_string(i) + "]");
    std::string role, text;
    if (!turn.Text("role", &role)) turn.Missing("role");
    if (role != "user" && role != "assistant")
      turn.Fail("role", "must be user or assistant", "invalid_value");
    openai::ParseTextContent(turn, "content", &text);
    if (turn.error()) return fields.Fail(*turn.error());
    AddMessage(role.c_str(), std::move(text), messages);
  }
}

const char* StopReason(const GenerationResult& result) {
  if (result.finish_reason != FinishReason::kStop) return "max_tokens";
  return result.stop_string.empty() ? "end_turn" : "stop_sequence";
}

Json StopSequence(const GenerationResult& result) {
  return result.stop_string.empty() ? Json(nullptr) : Json(result.stop_string);
}

// What the cache had is counted apart.
Json UsageJson(int64_t evaluated, int64_t cached, int64_t output) {
  return {{"input_tokens", evaluated},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

class AnthropicForm final : public AnswerForm {
 public:
  explicit AnthropicForm(FormParts parts) : head_(std::move(parts.head)), wishes_(parts.request.wishes) {}

  std::string Whole(std::span<const Answer> answers) override {
    const GenerationResult& result = answers[0].result;
    Json json =
        Message(UsageJson(result.timings.prompt_n, result.timings.cache_n, result.timings.predicted_n));
    json["content"].push_back({{"type", "text"}, {"text", result.text}});
    json["stop_reason"] = StopReason(result);
    json["stop_sequence"] = StopSequence(result);
    json["timings"] = openai::TimingsJson(result.timings);
    return openai::DumpJson(json) + "\n";
  }

  std::string OnStart(int, int n_prompt, int n_cached) override {
    return NamedEvent("message_start", {{"type", "message_start"},
                                        {"message", Message(UsageJson(n_prompt - n_cached, n_cached, 0))}}) +
           NamedEvent("content_block_start", {{"type", "content_block_start"},
                                              {"index", 0},
                                              {"content_block", {{"type", "text"}, {"text", ""}}}});
  }

  std::string OnProgress(int, const Progress& progress) override {
    if (!wishes_.return_progress) return {};
    return NamedEvent("ping", {{"type", "ping"},
                               {"prompt_progress",
                                {{"total", progress.total},
                                 {"cache", progress.cached},
                                 {"processed", progress.processed},
                                 {"time_ms", progress.ms}}}});
  }

  std::string OnPiece(const Piece& piece) override {
    if (piece.text.empty()) return {};
    return NamedEvent("content_block_delta", {{"type", "content_block_delta"},
                                              {"index", 0},
                                              {"delta", {{"type", "text_delta"}, {"text", piece.text}}}});
  }

  std::string OnAnswerEnd(int, const Answer& answer) override {
    const GenerationResult& result = answer.result;
    return NamedEvent("content_block_stop", {{"type", "content_block_stop"}, {"index", 0}}) +
           NamedEvent(
               "message_delta",
               {{"type", "message_delta"},
                {"delta", {{"stop_reason", StopReason(result)}, {"stop_sequence", StopSequence(result)}}},
                {"usage", {{"output_tokens", result.timings.predicted_n}}},
                {"timings", openai::TimingsJson(result.timings)}});
  }

  std::string OnEnd(std::span<const Answer>) override {
    return NamedEvent("message_stop", {{"type", "message_stop"}});
  }
  std::string OnError(const ApiError& error) override {
    return NamedEvent("error", AnthropicErrorBody(error, Json::object()));
  }

 private:
  Json Message(Json usage) const {
    return {{"id", "msg_" + head_.id},  {"type", "message"},        {"role", "assistant"},
            {"model", head_.model},     {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}, {"usage", std::move(usage)}};
  }

  const openai::ResponseHead head_;
  const openai::AnswerWishes wishes_;
};

}  // namespace

std::variant<openai::ApiRequest, ApiError> ParseMessagesRequest(const nlohmann::ordered_json& body,
                                                                const GenerationRequest& defaults,
                                                                bool count_only) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  auto messages = nlohmann::ordered_json::array();
  int max_tokens = 0;
  if (!count_only && !fields.Integer("max_tokens", 1, 1 << 30, &max_tokens)) fields.Missing("max_tokens");
  ParseSystem(fields, body, &messages);
  ParseTurns(fields, &messages);
  fields.Only("tools", "[[]]");
  fields.Only("tool_choice", R"([{"type": "auto"}, {"type": "none"}])");
  fields.Only("thinking", R"([{"type": "disabled"}])");
  fields.Only("mcp_servers", "[[]]");
  fields.Only("container", "[]");
  fields.Only("output_format", "[]");
  if (fields.error()) return *fields.error();
  nlohmann::ordered_json chat = body;
  for (const char* name : kOwnFields) chat.erase(name);
  chat["messages"] = std::move(messages);
  if (const auto* stop = fields.Find("stop_sequences"); stop != nullptr) chat["stop"] = *stop;
  for (const char* name : {"n", "n_cmpl", "logprobs", "top_logprobs", "n_probs"}) {
    if (chat.contains(name))
      return ApiError{.message = std::string(name) + " is not supported here",
                      .param = name,
                      .code = "unsupported_parameter"};
  }
  return openai::ParseRequest(openai::Endpoint::kChatCompletions, chat, defaults);
}

Json AnthropicErrorBody(const ApiError& error, const Json&) {
  const auto type = [&]() -> std::string {
    switch (error.status_code) {
      case 400:
        return "invalid_request_error";
      case 401:
        return "authentication_error";
      case 403:
        return "permission_error";
      case 404:
        return "not_found_error";
      case 413:
        return "request_too_large";
      case 429:
        return "rate_limit_error";
      case 503:
        return "overloaded_error";
      default:
        return error.status_code < 500 ? "invalid_request_error" : "api_error";
    }
  };
  return {{"type", "error"}, {"error", {{"type", type()}, {"message", error.message}}}};
}

std::unique_ptr<AnswerForm> MakeAnthropicForm(FormParts parts) {
  return std::make_unique<AnthropicForm>(std::move(parts));
}

}  // namespace longspec::wire
