// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "api/ollama.h"
#include "chat/answer_reader.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

class OllamaForm final : public AnswerForm {
 public:
  OllamaForm(OllamaRoute route, FormParts parts)
      : route_(route), head_(std::move(parts.head)), reader_(parts.reading) {}

  bool has_events() const override { return false; }

  std::string Whole(std::span<const FinishedAnswer> answers) override {
    const FinishedAnswer& answer = answers[0];
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

  std::string OnAnswerEnd(int, const FinishedAnswer& answer) override {
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

  std::string OnEnd(std::span<const FinishedAnswer>) override { return {}; }
  std::string OnError(const Error& error) override { return Dump(OllamaErrorBody(error)); }

 private:
  static std::string Dump(const Json& json) { return WriteJson(json) + "\n"; }

  Json Line(std::string_view text, std::string_view thought = {}) const {
    Json json = {{"model", head_.model}, {"created_at", OllamaTime(head_.created)}};
    if (route_ == OllamaRoute::kChat) {
      json["message"] = {{"role", "assistant"}, {"content", text}};
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
  const ResponseHead head_;
  chat::AnswerReader reader_;
  std::map<int, std::pair<std::string, std::string>> calls_;  // names and arguments
};

}  // namespace

std::unique_ptr<AnswerForm> MakeOllamaForm(OllamaRoute route, FormParts parts) {
  return std::make_unique<OllamaForm>(route, std::move(parts));
}

Json LoadedJson(OllamaRoute route, const ResponseHead& head) {
  Json json = {{"model", head.model}, {"created_at", OllamaTime(head.created)}};
  if (route == OllamaRoute::kChat) {
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    json["response"] = "";
  }
  json["done"] = true;
  json["done_reason"] = "load";
  return json;
}

Json OllamaErrorBody(const Error& error, const Json&) { return {{"error", error.message}}; }

std::string OllamaTime(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace longspec::api
