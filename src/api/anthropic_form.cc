// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "api/anthropic.h"
#include "api/errors.h"
#include "api/fields.h"
#include "chat/answer_reader.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

const char* StopReason(const GenerationResult& result, bool has_calls) {
  if (result.finish_reason != FinishReason::kStop) return "max_tokens";
  if (has_calls) return "tool_use";
  return result.stop_string.empty() ? "end_turn" : "stop_sequence";
}

Json StopSequence(const GenerationResult& result) {
  return result.stop_string.empty() ? Json(nullptr) : Json(result.stop_string);
}

// What the cache had is counted apart.
Json MessageUsage(int64_t evaluated, int64_t cached, int64_t output) {
  return {{"input_tokens", evaluated},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

class AnthropicForm final : public AnswerForm {
 public:
  explicit AnthropicForm(FormParts parts)
      : head_(std::move(parts.head)), wishes_(parts.request->wishes), reader_(parts.reading) {}

  std::string Whole(std::span<const FinishedAnswer> answers) override {
    const GenerationResult& result = answers[0].result;
    Json json =
        Message(MessageUsage(result.timings.prompt_n, result.timings.cache_n, result.timings.predicted_n));
    Blocks(reader_.ReadWhole(result.text));
    EndBlocks();
    json["content"] = content_;
    json["stop_reason"] = StopReason(result, reader_.has_whole_calls());
    json["stop_sequence"] = StopSequence(result);
    return WriteJson(json) + "\n";
  }

  std::string OnStart(const Start& start) override {
    const Json usage = MessageUsage(start.n_prompt - start.n_cached, start.n_cached, 0);
    return NamedEvent("message_start", {{"type", "message_start"}, {"message", Message(usage)}});
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

  std::string OnPiece(const Piece& piece) override { return Blocks(reader_.Push(piece.text)); }

  std::string OnAnswerEnd(int, const FinishedAnswer& answer) override {
    const GenerationResult& result = answer.result;
    std::string events = Blocks(reader_.Finish());
    events += EndBlocks();
    return events +
           NamedEvent("message_delta", {{"type", "message_delta"},
                                        {"delta",
                                         {{"stop_reason", StopReason(result, reader_.has_whole_calls())},
                                          {"stop_sequence", StopSequence(result)}}},
                                        {"usage", {{"output_tokens", result.timings.predicted_n}}}});
  }

  std::string OnEnd(std::span<const FinishedAnswer>) override {
    return NamedEvent("message_stop", {{"type", "message_stop"}});
  }
  std::string OnError(const Error& error) override {
    return NamedEvent("error", AnthropicErrorBody(error, Json::object()));
  }

 private:
  Json Message(Json usage) const {
    return {{"id", "msg_" + head_.id},  {"type", "message"},        {"role", "assistant"},
            {"model", head_.model},     {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}, {"usage", std::move(usage)}};
  }

  // --- The blocks of the content: events, while content_ becomes the same as a whole. ---

  std::string Blocks(const chat::AnswerParts& parts) {
    std::string events;
    for (const auto& part : parts) {
      if (const auto* call = std::get_if<chat::ToolCallPiece>(&part)) {
        if (call->index == n_calls_) {
          ++n_calls_;
          const std::string id = "toolu_" + head_.id + "_" + std::to_string(call->index);
          events +=
              OpenBlock({{"type", "tool_use"}, {"id", id}, {"name", call->name}, {"input", Json::object()}});
        }
        input_ += call->arguments;
        if (!call->arguments.empty())
          events += Delta({{"type", "input_json_delta"}, {"partial_json", call->arguments}});
      } else if (const auto* thought = std::get_if<chat::Thought>(&part)) {
        events += Write("thinking", thought->text);
      } else {
        events += Write("text", std::get<std::string>(part));
      }
    }
    return events;
  }

  // Into a block of the type, whose text is the field of its name.
  std::string Write(const std::string& type, const std::string& text) {
    std::string events;
    if (!open_ || content_.back()["type"] != type) {
      Json block = {{"type", type}, {type, ""}};
      if (type == "thinking") block["signature"] = "";
      events = OpenBlock(std::move(block));
    }
    content_.back()[type].get_ref<std::string&>() += text;
    return events + Delta({{"type", type + "_delta"}, {type, text}});
  }

  // An answer has at least one block.
  std::string EndBlocks() {
    std::string events;
    if (content_.empty()) events = OpenBlock({{"type", "text"}, {"text", ""}});
    return events + CloseBlock();
  }

  std::string OpenBlock(Json block) {
    std::string events = CloseBlock();
    content_.push_back(std::move(block));
    open_ = true;
    return events + NamedEvent("content_block_start", {{"type", "content_block_start"},
                                                       {"index", content_.size() - 1},
                                                       {"content_block", content_.back()}});
  }

  std::string Delta(Json delta) const {
    return NamedEvent(
        "content_block_delta",
        {{"type", "content_block_delta"}, {"index", content_.size() - 1}, {"delta", std::move(delta)}});
  }

  // Arguments that were cut short are no input.
  std::string CloseBlock() {
    if (!std::exchange(open_, false)) return {};
    Json& block = content_.back();
    std::string events;
    // Nobody's: thoughts that come back are taken without one. Clients wait for it.
    if (block["type"] == "thinking") events = Delta({{"type", "signature_delta"}, {"signature", ""}});
    if (block["type"] == "tool_use") {
      const auto input = ParseJson(std::exchange(input_, std::string()));
      if (const auto* value = std::get_if<Json>(&input); value != nullptr && value->is_object())
        block["input"] = *value;
    }
    return events +
           NamedEvent("content_block_stop", {{"type", "content_block_stop"}, {"index", content_.size() - 1}});
  }

  const ResponseHead head_;
  const AnswerWishes wishes_;
  chat::AnswerReader reader_;
  Json content_ = Json::array();
  bool open_ = false;  // the last block
  int n_calls_ = 0;
  std::string input_;  // of the last call, as text
};

}  // namespace

Json AnthropicErrorBody(const Error& error, const Json& more) {
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
  std::string message = error.message;
  // Anthropic's words, by which Claude Code knows that the conversation has to be cut, and by how much.
  if (more.contains("n_prompt_tokens") && more.contains("n_ctx")) {
    message = "prompt is too long: " + more["n_prompt_tokens"].dump() + " tokens > " + more["n_ctx"].dump() +
              " maximum";
  }
  return {{"type", "error"}, {"error", {{"type", type()}, {"message", message}}}};
}

std::unique_ptr<AnswerForm> MakeAnthropicForm(FormParts parts) {
  return std::make_unique<AnthropicForm>(std::move(parts));
}

}  // namespace longspec::api
