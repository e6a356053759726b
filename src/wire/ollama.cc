// SPDX-License-Identifier: Apache-2.0
#include "wire/ollama.h"

#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "chat/answer_reader.h"
#include "openai/fields.h"
#include "openai/json.h"

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;
using openai::Answer;
using openai::ApiError;
using openai::ApiRequest;
using openai::Fields;

// Options of how a model is run, which is the server's business here.
constexpr const char* kOfRunners[] = {"num_ctx",
                                      "num_batch",
                                      "num_gpu",
                                      "main_gpu",
                                      "num_thread",
                                      "num_keep",
                                      "use_mmap",
                                      "use_mlock",
                                      "low_vram",
                                      "f16_kv",
                                      "vocab_only",
                                      "numa",
                                      "num_gqa",
                                      "logits_all",
                                      "embedding_only",
                                      "rope_frequency_base",
                                      "rope_frequency_scale",
                                      "penalize_newline"};

// Fields that become others.
constexpr const char* kOfOllama[] = {"system",     "template", "raw",     "context", "images",
                                     "keep_alive", "options",  "format",  "think",   "prompt",
                                     "suffix",     "stream",   "messages"};

bool IsGiven(const Json& body, const char* name) {
  const auto at = body.find(name);
  return at != body.end() && !at->is_null() && !((at->is_string() || at->is_array()) && at->empty()) &&
         *at != "";
}

void TakeOptions(Fields& fields, Json* body) {
  const Json* value = fields.Find("options");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.Fail("options", "must be an object", "invalid_type");
  for (const auto& [name, option] : value->items()) {
    if (name == "num_predict") {
      (*body)["max_tokens"] = option == -2 ? Json(-1) : option;  // -2: as much as the context has room for
    } else {
      (*body)[name] = option;
    }
  }
  for (const char* name : kOfRunners) body->erase(name);
}

void TakeForm(Fields& fields, Json* body) {
  const Json* format = fields.Find("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    (*body)["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    (*body)["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *format}}}};
  } else {
    fields.Fail("format", "must be \"json\" or a JSON schema", "invalid_value");
  }
}

void TakeThinking(Fields& fields, Json* body) {
  const Json* think = fields.Find("think");
  if (think == nullptr) return;
  (*body)[think->is_string() ? "reasoning_effort" : "enable_thinking"] = *think;
}

// {"role", "content", "thinking", "images", "tool_calls": [{"function": {"name", "arguments": {}}}],
// "tool_name"}. Results belong to the calls before them in their order.
class MessageReader {
 public:
  Json Read(const Json& value, const std::string& place, Fields& fields) {
    Json message = value;
    if (!message.is_object()) {
      fields.Fail(place, "must be an object", "invalid_type");
      return message;
    }
    if (IsGiven(message, "images"))
      fields.Fail(place + ".images", "is not supported: messages are texts", "unsupported_value");
    for (const char* name : {"images", "tool_name"}) message.erase(name);
    if (!message.contains("content")) message["content"] = "";
    if (IsGiven(message, "tool_calls") && message["tool_calls"].is_array()) {
      for (Json& call : message["tool_calls"]) ReadCall(&call);
    } else {
      message.erase("tool_calls");
    }
    if (message.value("role", Json()) == "tool" && !message.contains("tool_call_id"))
      message["tool_call_id"] = IdOf(n_results_++);
    return message;
  }

 private:
  static std::string IdOf(int n) { return "call_" + std::to_string(n); }

  void ReadCall(Json* call) {
    if (!call->is_object()) return;
    if (!call->contains("id")) (*call)["id"] = IdOf(n_calls_);
    ++n_calls_;
    (*call)["type"] = "function";
    const auto function = call->find("function");
    if (function == call->end() || !function->is_object()) return;
    function->erase("index");
    const auto arguments = function->find("arguments");
    if (arguments != function->end() && arguments->is_object()) *arguments = openai::DumpJson(*arguments);
  }

  int n_calls_ = 0, n_results_ = 0;
};

Json ReadMessages(Fields& fields) {
  Json messages = Json::array();
  const Json* value = fields.Find("messages");
  if (value == nullptr) return messages;
  if (!value->is_array()) return *value;  // which is refused by its name
  MessageReader reader;
  for (const Json& message : *value)
    messages.push_back(reader.Read(message, "messages[" + std::to_string(messages.size()) + "]", fields));
  return messages;
}

// What an answer of this API has no place for.
void CheckForm(const ApiRequest& request, Fields& fields) {
  const auto refuse = [&fields](const char* name, const char* advice) {
    fields.Fail(name, "is not supported: " + std::string(advice), "unsupported_parameter");
  };
  if (request.n != 1) refuse("n", "/v1/chat/completions gives several answers");
  if (request.prompts.size() > 1) refuse("prompt", "it is one text; /v1/completions takes several");
  if (request.generation.n_logprobs >= 0) refuse("logprobs", "/v1/chat/completions gives chances of tokens");
  if (request.wishes.echo) refuse("echo", "/v1/completions repeats a prompt before its answer");
}

Json MessageOf(const char* role, const Json& content) { return {{"role", role}, {"content", content}}; }

// `fallback` where there is none.
Json FieldOr(const Json& body, const char* name, const Json& fallback) {
  const auto at = body.find(name);
  return at == body.end() || at->is_null() ? fallback : *at;
}

class OllamaForm final : public AnswerForm {
 public:
  OllamaForm(OllamaRoute route, FormParts parts)
      : route_(route), head_(std::move(parts.head)), reader_(parts.reading) {}

  bool has_events() const override { return false; }

  std::string Whole(std::span<const Answer> answers) override {
    const Answer& answer = answers[0];
    std::string text, thoughts;
    for (const auto& part : reader_.ReadWhole(answer.result.text)) {
      if (const auto* said = std::get_if<std::string>(&part)) text += *said;
      if (const auto* thought = std::get_if<chat::Thought>(&part)) thoughts += thought->text;
      Note(part);
    }
    Json json = Line(text, thoughts);
    if (!calls_.empty()) json["message"]["tool_calls"] = CallsJson();
    AddEnd(answer.result, &json);
    return Dump(json);
  }

  std::string OnStart(const Start&) override { return {}; }
  std::string OnProgress(int, const Progress&) override { return {}; }
  std::string OnPiece(const Piece& piece) override { return Lines(reader_.Push(piece.text)); }

  std::string OnAnswerEnd(int, const Answer& answer) override {
    std::string lines = Lines(reader_.Finish());
    if (!calls_.empty()) {
      Json json = Line("");
      json["message"]["tool_calls"] = CallsJson();
      json["done"] = false;
      lines += Dump(json);
    }
    Json last = Line("");
    AddEnd(answer.result, &last);
    return lines + Dump(last);
  }

  std::string OnEnd(std::span<const Answer>) override { return {}; }
  std::string OnError(const ApiError& error) override { return Dump(OllamaErrorBody(error)); }

 private:
  static std::string Dump(const Json& json) { return openai::DumpJson(json) + "\n"; }

  Json Line(std::string_view text, std::string_view thought = {}) const {
    Json json = {{"model", head_.model}, {"created_at", OllamaTime(head_.created)}};
    if (route_ == OllamaRoute::kChat) {
      json["message"] = MessageOf("assistant", text);
    } else {
      json["response"] = text;
    }
    if (!thought.empty()) (route_ == OllamaRoute::kChat ? json["message"] : json)["thinking"] = thought;
    return json;
  }

  std::string Lines(const chat::AnswerParts& parts) {
    std::string lines;
    for (const auto& part : parts) {
      Note(part);
      if (std::holds_alternative<chat::ToolCallPiece>(part)) continue;
      const auto* thought = std::get_if<chat::Thought>(&part);
      Json json = thought != nullptr ? Line("", thought->text) : Line(std::get<std::string>(part));
      json["done"] = false;
      lines += Dump(json);
    }
    return lines;
  }

  // Calls are told of as wholes.
  void Note(const chat::AnswerParts::value_type& part) {
    const auto* piece = std::get_if<chat::ToolCallPiece>(&part);
    if (piece == nullptr) return;
    auto& [name, arguments] = calls_[piece->index];
    name += piece->name;
    arguments += piece->arguments;
  }

  Json CallsJson() const {
    Json calls = Json::array();
    for (const auto& [index, call] : calls_) {
      Json arguments = Json::parse(call.second, nullptr, false);
      if (!arguments.is_object()) arguments = Json::object();  // of one that was cut short
      calls.push_back({{"function", {{"index", index}, {"name", call.first}, {"arguments", arguments}}}});
    }
    return calls;
  }

  static void AddEnd(const GenerationResult& result, Json* json) {
    const auto nanoseconds = [](double ms) { return static_cast<int64_t>(ms * 1e6); };
    const Timings& t = result.timings;
    (*json)["done"] = true;
    (*json)["done_reason"] = result.finish_reason == FinishReason::kStop ? "stop" : "length";
    (*json)["total_duration"] = nanoseconds(t.prompt_ms + t.predicted_ms);
    (*json)["load_duration"] = 0;
    (*json)["prompt_eval_count"] = t.prompt_n + t.cache_n;
    (*json)["prompt_eval_duration"] = nanoseconds(t.prompt_ms);
    (*json)["eval_count"] = t.predicted_n;
    (*json)["eval_duration"] = nanoseconds(t.predicted_ms);
  }

  const OllamaRoute route_;
  const openai::ResponseHead head_;
  chat::AnswerReader reader_;
  std::map<int, std::pair<std::string, std::string>> calls_;  // names and arguments
};

}  // namespace

bool AsksNothing(OllamaRoute route, const Json& body) {
  if (!body.is_object()) return false;
  return !IsGiven(body, route == OllamaRoute::kChat ? "messages" : "prompt") && !IsGiven(body, "suffix");
}

std::variant<ApiRequest, ApiError> ParseOllamaRequest(OllamaRoute route, const Json& body,
                                                      const openai::RequestDefaults& defaults,
                                                      bool has_template) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  Json own = body;
  for (const char* name : kOfOllama) own.erase(name);
  fields.Only("images", "[[]]", "prompts are texts");
  fields.Only("template", R"([""])",
              "chats are written by the model's own template; raw has a prompt as it is");
  TakeOptions(fields, &own);
  TakeForm(fields, &own);
  TakeThinking(fields, &own);
  own["stream"] = FieldOr(body, "stream", true);
  bool raw = false;
  fields.Bool("raw", &raw);
  const bool has_hole = IsGiven(body, "suffix");
  const bool is_chat = route == OllamaRoute::kChat || (!raw && !has_hole && has_template);
  if (is_chat && route == OllamaRoute::kChat) {
    own["messages"] = ReadMessages(fields);
  } else if (is_chat) {
    own["messages"] = Json::array();
    if (IsGiven(body, "system")) own["messages"].push_back(MessageOf("system", body["system"]));
    own["messages"].push_back(MessageOf("user", FieldOr(body, "prompt", "")));
  } else {
    own["prompt"] = FieldOr(body, "prompt", "");
    if (has_hole) own["suffix"] = body["suffix"];
    if (!own.contains("max_tokens") && defaults.generation.n_predict < 0) own["max_tokens"] = -1;
  }
  if (fields.error()) return *fields.error();
  const auto endpoint = is_chat ? openai::Endpoint::kChatCompletions : openai::Endpoint::kCompletions;
  auto parsed = openai::ParseRequest(endpoint, own, defaults);
  if (const auto* request = std::get_if<ApiRequest>(&parsed)) CheckForm(*request, fields);
  if (fields.error()) return *fields.error();
  return parsed;
}

std::unique_ptr<AnswerForm> MakeOllamaForm(OllamaRoute route, FormParts parts) {
  return std::make_unique<OllamaForm>(route, std::move(parts));
}

Json LoadedJson(OllamaRoute route, const openai::ResponseHead& head) {
  Json json = {{"model", head.model}, {"created_at", OllamaTime(head.created)}};
  if (route == OllamaRoute::kChat) {
    json["message"] = MessageOf("assistant", "");
  } else {
    json["response"] = "";
  }
  json["done"] = true;
  json["done_reason"] = "load";
  return json;
}

Json OllamaErrorBody(const ApiError& error, const Json&) { return {{"error", error.message}}; }

std::string OllamaTime(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace longspec::wire
