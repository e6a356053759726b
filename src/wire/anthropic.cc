// SPDX-License-Identifier: Apache-2.0
#include "wire/anthropic.h"

#include <string>
#include <utility>
#include <vector>

#include "openai/answer_form.h"
#include "openai/answer_reader.h"
#include "openai/field_rules.h"
#include "openai/fields.h"
#include "openai/json.h"
#include "openai/messages.h"
#include "openai/tools.h"
#include "wire/chat_turns.h"
#include "wire/errors.h"

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;
using openai::Answer;
using openai::ApiError;
using openai::Fields;
using openai::Treatment;

// Claude Code's first block of a system prompt changes with every call, so that nothing after it would be
// known from before (llama.cpp#20623). It is no instruction.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

constexpr std::string_view kOneAnswer = "/v1/chat/completions gives several answers";
constexpr std::string_view kNoChances = "/v1/chat/completions gives chances of tokens";

// What has no parser of its own here and is no field of a chat, too.
constexpr openai::FieldRule kMessagesRules[] = {
    {"metadata"},
    {"service_tier"},
    {"cache_control"},
    {"inference_geo"},
    {"context_management", Treatment::kIgnored},
    {"speed", Treatment::kIgnored},
    {"betas", Treatment::kIgnored},
    {"container", Treatment::kRefused, openai::kOfAll, "[]", "nothing is run here"},
    {"mcp_servers", Treatment::kRefused, openai::kOfAll, "[[]]", "tools are the client's own"},
    {"n", Treatment::kRefused, openai::kOfAll, "[1]", kOneAnswer},
    {"n_cmpl", Treatment::kRefused, openai::kOfAll, "[1]", kOneAnswer},
    {"logprobs", Treatment::kRefused, openai::kOfAll, "[false]", kNoChances},
    {"top_logprobs", Treatment::kRefused, openai::kOfAll, "[0]", kNoChances},
    {"n_probs", Treatment::kRefused, openai::kOfAll, "[0]", kNoChances},
};

void ParseSystem(Fields& fields, const Json& body, ChatTurns* turns) {
  const Json* system = fields.Find("system");
  if (system == nullptr) return;
  Json without = body;
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
  if (!text.empty()) turns->Say("system", std::move(text));
}

// The blocks of a turn: texts, joined by line breaks where nothing stands between them, thoughts, calls and
// results.
class TurnReader {
 public:
  TurnReader(std::string role, ChatTurns* turns) : role_(std::move(role)), turns_(turns) {}

  void Read(Fields& block) {
    std::string type;
    if (!block.Text("type", &type)) block.Missing("type");
    if (type == "text") {
      std::string text;
      if (!block.Text("text", &text)) block.Missing("text");
      text_ += (text_.empty() ? "" : "\n") + text;
    } else if (type == "tool_use" && role_ == "assistant") {
      ReadCall(block);
    } else if (type == "tool_result" && role_ == "user") {
      ReadResult(block);
    } else if (type == "thinking" && role_ == "assistant") {
      ReadThought(block);
    } else if (!(role_ == "assistant" && type == "redacted_thinking")) {
      block.Fail("type", "\"" + type + "\" is not supported in a message of the " + role_,
                 "unsupported_value");
    }
  }

  void End() {
    if (!text_.empty() || !said_) Say();
  }

 private:
  void Say() {
    turns_->Say(role_, std::exchange(text_, std::string()));
    said_ = true;
  }

  void ReadThought(Fields& block) {
    std::string thought;
    if (!block.Text("thinking", &thought)) block.Missing("thinking");
    if (!text_.empty()) Say();  // what was said before it
    turns_->Think(thought);
    said_ = true;
  }

  void ReadCall(Fields& block) {
    std::string id, name;
    if (!block.Text("id", &id)) block.Missing("id");
    if (!block.Text("name", &name)) block.Missing("name");
    const Json* input = block.Find("input");
    if (input == nullptr) return block.Missing("input");
    if (!input->is_object()) return block.Fail("input", "must be an object", "invalid_type");
    if (!text_.empty() || !said_) Say();  // the message that the call joins
    turns_->Call(std::move(id), std::move(name), openai::DumpJson(*input));
  }

  void ReadResult(Fields& block) {
    std::string id, text;
    if (!block.Text("tool_use_id", &id)) block.Missing("tool_use_id");
    if (block.Find("content") != nullptr) openai::ParseTextContent(block, "content", &text);
    if (!text_.empty()) Say();
    turns_->Result(std::move(id), std::move(text));
    said_ = true;
  }

  const std::string role_;
  ChatTurns* const turns_;
  std::string text_;
  bool said_ = false;
};

void ParseTurn(Fields& turn, ChatTurns* turns) {
  std::string role;
  if (!turn.Text("role", &role)) turn.Missing("role");
  if (role != "user" && role != "assistant" && role != "system")
    turn.Fail("role", "must be user, assistant or system", "invalid_value");
  const Json* content = turn.Find("content");
  if (content == nullptr) return turn.Missing("content");
  TurnReader reader(role, turns);
  if (!content->is_array()) {
    std::string text;
    turn.Text("content", &text);
    return turns->Say(role, std::move(text));
  }
  for (size_t i = 0; i < content->size() && !turn.error(); ++i) {
    Fields block((*content)[i], turn.PlaceOf("content[" + std::to_string(i) + "]"));
    reader.Read(block);
    if (block.error()) turn.Fail(*block.error());
  }
  reader.End();
}

void ParseTurns(Fields& fields, ChatTurns* turns) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) return fields.Missing("messages");
  if (!messages->is_array() || messages->empty())
    return fields.Fail("messages", "must be a list of messages", "invalid_type");
  for (size_t i = 0; i < messages->size(); ++i) {
    Fields turn((*messages)[i], "messages[" + std::to_string(i) + "]");
    ParseTurn(turn, turns);
    if (turn.error()) return fields.Fail(*turn.error());
  }
}

// {"type": "auto", "any", "tool" or "none", "name", "disable_parallel_tool_use"}
void ParseClientChoice(Fields& fields, openai::ToolUse* use) {
  using openai::ToolChoice;
  use->choice = use->tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const Json* value = fields.Find("tool_choice");
  if (value == nullptr) return;
  Fields choice(*value, "tool_choice");
  std::string type, name;
  bool one = false;
  if (!choice.Text("type", &type)) choice.Missing("type");
  if (choice.Bool("disable_parallel_tool_use", &one)) use->parallel = !one;
  if (type == "none") {
    use->choice = ToolChoice::kNone;
  } else if (type == "any") {
    if (use->tools.empty()) choice.Fail("type", "\"any\" needs tools", "invalid_value");
    use->choice = ToolChoice::kRequired;
  } else if (type == "tool") {
    if (!choice.Text("name", &name)) choice.Missing("name");
    if (!openai::ChooseTool(name, use)) choice.Fail("name", "is not that of a tool", "invalid_value");
  } else if (type != "auto") {
    choice.Fail("type", "must be auto, any, tool or none", "invalid_value");
  }
  if (choice.error()) fields.Fail(*choice.error());
}

void ParseClientTools(Fields& fields, openai::ToolUse* use) {
  if (const Json* tools = fields.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) return fields.Fail("tools", "must be a list of tools", "invalid_type");
    for (size_t i = 0; i < tools->size() && !fields.error(); ++i) {
      Fields inner((*tools)[i], "tools[" + std::to_string(i) + "]");
      std::string type = "custom";
      inner.Text("type", &type);
      if (type != "custom") {
        inner.Fail("type", "\"" + type + "\" is not supported: only tools of the client's own (custom) are",
                   "unsupported_value");
      }
      openai::Tool tool;
      openai::ParseFunction(inner, "input_schema", &tool);
      if (inner.error()) return fields.Fail(*inner.error());
      openai::AddTool(fields, std::move(tool), use);
    }
  }
  ParseClientChoice(fields, use);
}

// output_config: its format, which has an older name, too ({"type": "json_schema", "schema": {...}}), and how
// hard to think.
void ParseOutput(Fields& fields, GrammarText* grammar, std::string* field, std::string* effort) {
  *field = "output_format";
  openai::ParseResponseFormat(fields, "output_format", grammar);
  if (const Json* value = fields.Find("output_config"); value != nullptr) {
    Fields config(*value, "output_config");
    if (config.Find("format") != nullptr) *field = "output_config.format";
    openai::ParseResponseFormat(config, "format", grammar);
    config.Text("effort", effort);
    if (config.error()) fields.Fail(*config.error());
  }
}

const char* StopReason(const GenerationResult& result, bool has_calls) {
  if (result.finish_reason != FinishReason::kStop) return "max_tokens";
  if (has_calls) return "tool_use";
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
  explicit AnthropicForm(FormParts parts)
      : head_(std::move(parts.head)), wishes_(parts.request.wishes), reader_(parts.reading) {}

  std::string Whole(std::span<const Answer> answers) override {
    const GenerationResult& result = answers[0].result;
    Json json =
        Message(UsageJson(result.timings.prompt_n, result.timings.cache_n, result.timings.predicted_n));
    Blocks(reader_.ReadWhole(result.text));
    EndBlocks();
    json["content"] = content_;
    json["stop_reason"] = StopReason(result, reader_.has_whole_calls());
    json["stop_sequence"] = StopSequence(result);
    return openai::DumpJson(json) + "\n";
  }

  std::string OnStart(const Start& start) override {
    const Json usage = UsageJson(start.n_prompt - start.n_cached, start.n_cached, 0);
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

  std::string OnAnswerEnd(int, const Answer& answer) override {
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

  // --- The blocks of the content: events, while content_ becomes the same as a whole. ---

  std::string Blocks(const openai::AnswerParts& parts) {
    std::string events;
    for (const auto& part : parts) {
      if (const auto* call = std::get_if<openai::ToolCallPiece>(&part)) {
        if (call->index == n_calls_) {
          ++n_calls_;
          const std::string id = "toolu_" + head_.id + "_" + std::to_string(call->index);
          events +=
              OpenBlock({{"type", "tool_use"}, {"id", id}, {"name", call->name}, {"input", Json::object()}});
        }
        input_ += call->arguments;
        if (!call->arguments.empty())
          events += Delta({{"type", "input_json_delta"}, {"partial_json", call->arguments}});
      } else if (const auto* thought = std::get_if<openai::Thought>(&part)) {
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
      const auto input = openai::ParseJson(std::exchange(input_, std::string()));
      if (const auto* value = std::get_if<Json>(&input); value != nullptr && value->is_object())
        block["input"] = *value;
    }
    return events +
           NamedEvent("content_block_stop", {{"type", "content_block_stop"}, {"index", content_.size() - 1}});
  }

  const openai::ResponseHead head_;
  const openai::AnswerWishes wishes_;
  openai::AnswerReader reader_;
  Json content_ = Json::array();
  bool open_ = false;  // the last block
  int n_calls_ = 0;
  std::string input_;  // of the last call, as text
};

}  // namespace

std::variant<openai::ApiRequest, ApiError> ParseMessagesRequest(const Json& body,
                                                                const openai::RequestDefaults& defaults,
                                                                bool count_only) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  ChatTurns turns;
  openai::ToolUse tools;
  GrammarText grammar;
  std::string grammar_field, effort;
  std::vector<std::string> ignored;
  int max_tokens = -1;
  if (!fields.Integer("max_tokens", -1, 1 << 30, &max_tokens) && !count_only) fields.Missing("max_tokens");
  ParseSystem(fields, body, &turns);
  ParseTurns(fields, &turns);
  ParseClientTools(fields, &tools);
  ParseOutput(fields, &grammar, &grammar_field, &effort);
  KeepRules(kMessagesRules, openai::kOfAll, fields, &ignored);
  const auto* stop = fields.Find("stop_sequences");
  if (fields.error()) return *fields.error();
  Json chat = fields.Rest();
  chat["messages"] = turns.Take();
  chat["max_tokens"] = max_tokens;
  if (stop != nullptr) chat["stop"] = *stop;
  if (!effort.empty() && !chat.contains("reasoning_effort")) chat["reasoning_effort"] = effort;
  auto parsed = openai::ParseRequest(openai::Endpoint::kChatCompletions, chat, defaults);
  auto* request = std::get_if<openai::ApiRequest>(&parsed);
  if (request == nullptr) return parsed;
  request->tools = std::move(tools);
  request->ignored.insert(request->ignored.end(), ignored.begin(), ignored.end());
  if (grammar.kind != GrammarText::Kind::kNone) {
    if (auto error = openai::SetAnswerForm(std::move(grammar), std::move(grammar_field), request))
      return *std::move(error);
  }
  return parsed;
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
