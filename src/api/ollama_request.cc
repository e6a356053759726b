// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "api/field_rules.h"
#include "api/fields.h"
#include "api/ollama.h"
#include "api/openai.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// Options of how a model is run, which is the server's business here.
constexpr std::string_view kOfRunners[] = {"num_ctx",
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
constexpr std::string_view kOfOllama[] = {"system",     "template", "raw",     "context", "images",
                                          "keep_alive", "options",  "format",  "think",   "prompt",
                                          "suffix",     "stream",   "messages"};

bool IsGiven(const Json& body, const char* name) {
  const auto at = body.find(name);
  return at != body.end() && !at->is_null() && !((at->is_string() || at->is_array()) && at->empty()) &&
         *at != "";
}

void TakeOptions(const Json& options, Fields& fields) {
  if (options.is_null()) return;
  if (!options.is_object()) return fields.Fail("options", "must be an object", "invalid_type");
  for (const auto& [name, option] : options.items()) {
    if (name == "num_predict") {
      fields.Set("max_tokens", option == -2 ? Json(-1) : option);  // -2: as much as the context has room for
    } else if (std::ranges::find(kOfRunners, name) == std::end(kOfRunners)) {
      fields.Set(name, option);
    }
  }
}

void TakeForm(const Json& format, Fields& fields) {
  if (format.is_null() || format == "") return;
  if (format == "json") {
    fields.Set("response_format", {{"type", "json_object"}});
  } else if (format.is_object()) {
    fields.Set("response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", format}}}});
  } else {
    fields.Fail("format", "must be \"json\" or a JSON schema", "invalid_value");
  }
}

void TakeThinking(const Json& think, Fields& fields) {
  if (!think.is_null()) fields.Set(think.is_string() ? "reasoning_effort" : "enable_thinking", think);
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
    if (arguments != function->end() && arguments->is_object()) *arguments = WriteJson(*arguments);
  }

  int n_calls_ = 0, n_results_ = 0;
};

Json ReadMessages(const Json& list, Fields& fields) {
  if (!list.is_array()) return list;  // which is refused by its name
  Json messages = Json::array();
  MessageReader reader;
  for (const Json& message : list)
    messages.push_back(reader.Read(message, "messages[" + std::to_string(messages.size()) + "]", fields));
  return messages;
}

// What an answer of this API has no place for.
void CheckForm(const Request& request, Fields& fields) {
  const auto refuse = [&fields](const char* name, std::string_view advice) {
    fields.Fail(name, "is not supported: " + std::string(advice), "unsupported_parameter");
  };
  if (request.n != 1) refuse("n", kChatsGiveAnswers);
  if (request.prompts.size() > 1) refuse("prompt", "it is one text; /v1/completions takes several");
  if (request.generation.n_logprobs >= 0) refuse("logprobs", kChatsGiveChances);
  if (request.wishes.echo) refuse("echo", "/v1/completions repeats a prompt before its answer");
}

// `fallback` where there is none.
const Json& FieldOr(const Json& body, const char* name, const Json& fallback) {
  const auto at = body.find(name);
  return at == body.end() || at->is_null() ? fallback : *at;
}

}  // namespace

bool AsksNothing(OllamaRoute route, const Json& body) {
  if (!body.is_object()) return false;
  return !IsGiven(body, route == OllamaRoute::kChat ? "messages" : "prompt") && !IsGiven(body, "suffix");
}

std::variant<Request, Error> ParseOllamaRequest(OllamaRoute route, const Json& body,
                                                const RequestDefaults& defaults, bool has_template) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  fields.Only("images", "[[]]", "prompts are texts");
  fields.Only("template", R"([""])",
              "chats are written by the model's own template; raw has a prompt as it is");
  bool raw = false;
  fields.Bool("raw", &raw);
  for (const std::string_view name : kOfOllama) fields.Find(name);
  fields.HideKnown();
  TakeOptions(FieldOr(body, "options", nullptr), fields);
  TakeForm(FieldOr(body, "format", nullptr), fields);
  TakeThinking(FieldOr(body, "think", nullptr), fields);
  fields.Set("stream", FieldOr(body, "stream", true));
  const bool has_hole = IsGiven(body, "suffix");
  const bool is_chat = route == OllamaRoute::kChat || (!raw && !has_hole && has_template);
  if (route == OllamaRoute::kChat) {
    fields.Set("messages", ReadMessages(FieldOr(body, "messages", Json::array()), fields));
  } else if (is_chat) {
    Json messages = Json::array();
    if (IsGiven(body, "system")) messages.push_back({{"role", "system"}, {"content", body["system"]}});
    messages.push_back({{"role", "user"}, {"content", FieldOr(body, "prompt", "")}});
    fields.Set("messages", std::move(messages));
  } else {
    fields.Set("prompt", FieldOr(body, "prompt", ""));
    if (has_hole) fields.Set("suffix", body["suffix"]);
    if (fields.Find("max_tokens") == nullptr && defaults.generation.n_predict < 0)
      fields.Set("max_tokens", -1);
  }
  if (fields.error()) return *fields.error();
  auto parsed = is_chat ? ParseChat(fields, defaults) : ParseCompletion(fields, defaults);
  if (const auto* request = std::get_if<Request>(&parsed)) CheckForm(*request, fields);
  if (fields.error()) return *fields.error();
  return parsed;
}

}  // namespace longspec::api
