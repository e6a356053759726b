// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "api/anthropic.h"
#include "api/field_rules.h"
#include "api/fields.h"
#include "api/grammar_fields.h"
#include "api/messages.h"
#include "api/shared_fields.h"
#include "api/tools.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// Claude Code's first block of a system prompt changes with every call, so that nothing after it would be
// known from before (llama.cpp#20623). It is no instruction.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// What has no parser of its own here and is no field of a chat, too.
constexpr FieldRule kMessagesRules[] = {
    {"metadata"},
    {"service_tier"},
    {"cache_control"},
    {"inference_geo"},
    {"context_management", Treatment::kIgnored},
    {"speed", Treatment::kIgnored},
    {"betas", Treatment::kIgnored},
    {"container", Treatment::kRefused, kOfAll, "[]", "nothing is run here"},
    {"mcp_servers", Treatment::kRefused, kOfAll, "[[]]", "tools are the client's own"},
    {"n", Treatment::kRefused, kOfAll, "[1]", kChatsGiveAnswers},
    {"n_cmpl", Treatment::kRefused, kOfAll, "[1]", kChatsGiveAnswers},
    {"logprobs", Treatment::kRefused, kOfAll, "[false]", kChatsGiveChances},
    {"top_logprobs", Treatment::kRefused, kOfAll, "[0]", kChatsGiveChances},
    {"n_probs", Treatment::kRefused, kOfAll, "[0]", kChatsGiveChances},
};

void ParseSystem(Fields& fields, ChatTurns* turns) {
  const Json* system = fields.Find("system");
  if (system == nullptr) return;
  size_t first = 0;
  if (system->is_array() && !system->empty() && system->front().is_object()) {
    const auto text = system->front().find("text");
    if (text != system->front().end() && text->is_string() &&
        text->get_ref<const std::string&>().starts_with(kBillingHeader))
      first = 1;
  }
  std::string text;
  ParseTextContent(fields, "system", &text, first);
  if (!text.empty()) turns->Say("system", std::move(text));
}

void AddLine(const std::string& line, std::string* text) { *text += (text->empty() ? "" : "\n") + line; }

// {"name", "description", "input_schema"}, and whether the model is to be told of it later.
chat::Tool ParseClientTool(Fields& fields, bool* is_deferred) {
  chat::Tool tool;
  ParseFunction(fields, "input_schema", &tool);
  fields.Bool("defer_loading", is_deferred);
  return tool;
}

// {"type": "tool_reference", "name"} or {"type": "tool_definition", "definition"}, and what is told of it.
std::string ParseToolChange(Fields& block, bool adds, LateTools* late) {
  const Json* value = block.Find("tool");
  if (value == nullptr) {
    block.Missing("tool");
    return {};
  }
  Fields tool(*value, block.PlaceOf("tool"));
  std::string type, name, text;
  if (!tool.Text("type", &type)) tool.Missing("type");
  if (const Json* definition = tool.Find("definition"); definition != nullptr && adds) {
    Fields inner(*definition, tool.PlaceOf("definition"));
    bool is_deferred = false;
    chat::Tool added = ParseClientTool(inner, &is_deferred);
    if (inner.error()) tool.Fail(*inner.error());
    if (!tool.error()) text = late->Announce(std::move(added));
  } else {
    if (!tool.Text("name", &name)) tool.Missing("name");
    if (!tool.error()) text = adds ? late->Announce(name) : late->Withdraw(name);
  }
  if (tool.error()) block.Fail(*tool.error());
  return text;
}

// The blocks of a turn: texts, joined by line breaks where nothing stands between them, thoughts, calls and
// results.
class TurnReader {
 public:
  TurnReader(std::string role, LateTools* late, ChatTurns* turns)
      : role_(std::move(role)), late_(late), turns_(turns) {}

  void Read(Fields& block) {
    std::string type;
    if (!block.Text("type", &type)) block.Missing("type");
    if (type == "text") {
      std::string text;
      if (!block.Text("text", &text)) block.Missing("text");
      AddLine(text, &text_);
    } else if ((type == "tool_addition" || type == "tool_removal") && role_ != "assistant") {
      AddLine(ParseToolChange(block, type == "tool_addition", late_), &text_);
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
    turns_->Call(std::move(id), std::move(name), WriteJson(*input));
  }

  void ReadResult(Fields& block) {
    std::string id, text;
    if (!block.Text("tool_use_id", &id)) block.Missing("tool_use_id");
    if (const Json* content = block.Find("content"); content != nullptr) text = ResultText(block, *content);
    if (!text_.empty()) Say();
    turns_->Result(std::move(id), std::move(text));
    said_ = true;
  }

  // Texts, and tools that were looked for and found.
  std::string ResultText(Fields& block, const Json& content) {
    std::string text;
    if (!content.is_array()) {
      block.Text("content", &text);
      return text;
    }
    for (size_t i = 0; i < content.size() && !block.error(); ++i) {
      Fields part(content[i], block.PlaceOf("content[" + std::to_string(i) + "]"));
      std::string type, own;
      if (!part.Text("type", &type)) part.Missing("type");
      if (type == "tool_reference") {
        if (!part.Text("tool_name", &own)) part.Missing("tool_name");
        if (!part.error()) own = late_->Announce(own);
      } else {
        if (type != "text")
          part.Fail("type", "is not supported: only parts of type \"text\" are", "unsupported_value");
        if (!part.Text("text", &own)) part.Missing("text");
      }
      AddLine(own, &text);
      if (part.error()) block.Fail(*part.error());
    }
    return text;
  }

  const std::string role_;
  LateTools* const late_;
  ChatTurns* const turns_;
  std::string text_;
  bool said_ = false;
};

void ParseTurn(Fields& turn, LateTools* late, ChatTurns* turns) {
  std::string role;
  if (!turn.Text("role", &role)) turn.Missing("role");
  if (role != "user" && role != "assistant" && role != "system")
    turn.Fail("role", "must be user, assistant or system", "invalid_value");
  const Json* content = turn.Find("content");
  if (content == nullptr) return turn.Missing("content");
  TurnReader reader(role, late, turns);
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

void ParseTurns(Fields& fields, LateTools* late, ChatTurns* turns) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) return fields.Missing("messages");
  if (!messages->is_array() || messages->empty())
    return fields.Fail("messages", "must be a list of messages", "invalid_type");
  for (size_t i = 0; i < messages->size(); ++i) {
    Fields turn((*messages)[i], "messages[" + std::to_string(i) + "]");
    ParseTurn(turn, late, turns);
    if (turn.error()) return fields.Fail(*turn.error());
  }
}

// {"type": "auto", "any", "tool" or "none", "name", "disable_parallel_tool_use"}
void ParseClientChoice(Fields& fields, chat::ToolUse* use) {
  using chat::ToolChoice;
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
    if (!chat::ChooseTool(name, use)) choice.Fail("name", "is not that of a tool", "invalid_value");
  } else if (type != "auto") {
    choice.Fail("type", "must be auto, any, tool or none", "invalid_value");
  }
  if (choice.error()) fields.Fail(*choice.error());
}

void ParseClientTools(Fields& fields, LateTools* late, chat::ToolUse* use) {
  const Json* tools = fields.Find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return fields.Fail("tools", "must be a list of tools", "invalid_type");
  for (size_t i = 0; i < tools->size() && !fields.error(); ++i) {
    Fields inner((*tools)[i], "tools[" + std::to_string(i) + "]");
    std::string type = "custom";
    inner.Text("type", &type);
    if (type != "custom") {
      inner.Fail("type", "\"" + type + "\" is not supported: only tools of the client's own (custom) are",
                 "unsupported_value");
    }
    bool is_deferred = false;
    chat::Tool tool = ParseClientTool(inner, &is_deferred);
    if (inner.error()) return fields.Fail(*inner.error());
    if (is_deferred) late->Defer(std::move(tool));
    if (!is_deferred) AddTool(fields, std::move(tool), use);
  }
}

// output_config: its format, which has an older name, too ({"type": "json_schema", "schema": {...}}), and how
// hard to think.
void ParseOutput(Fields& fields, GrammarText* grammar, std::string* field, std::string* effort) {
  *field = "output_format";
  ParseResponseFormat(fields, "output_format", grammar);
  if (const Json* value = fields.Find("output_config"); value != nullptr) {
    Fields config(*value, "output_config");
    if (config.Find("format") != nullptr) *field = "output_config.format";
    ParseResponseFormat(config, "format", grammar);
    config.Text("effort", effort);
    if (config.error()) fields.Fail(*config.error());
  }
}

std::variant<Request, Error> ParseAnthropic(const Json& body, const RequestDefaults& defaults,
                                            bool needs_limit) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  ChatTurns turns;
  LateTools late;
  chat::ToolUse tools;
  GrammarText grammar;
  std::string grammar_field, effort;
  std::vector<std::string> ignored;
  int max_tokens = -1;
  if (!fields.Integer("max_tokens", -1, 1 << 30, &max_tokens) && needs_limit) fields.Missing("max_tokens");
  ParseSystem(fields, &turns);
  ParseClientTools(fields, &late, &tools);
  ParseTurns(fields, &late, &turns);
  late.Join(fields, &tools);
  ParseClientChoice(fields, &tools);
  ParseOutput(fields, &grammar, &grammar_field, &effort);
  KeepRules(kMessagesRules, kOfAll, fields, &ignored);
  const auto* stop = fields.Find("stop_sequences");
  if (fields.error()) return *fields.error();
  fields.HideKnown();
  fields.Set("max_tokens", max_tokens);
  if (stop != nullptr) fields.Set("stop", *stop);
  if (!effort.empty() && fields.Find("reasoning_effort") == nullptr) fields.Set("reasoning_effort", effort);
  Request request = ParseSharedFields(Endpoint::kChatCompletions, fields, defaults);
  request.generation.messages = turns.Take(fields);
  request.tools = std::move(tools);
  bool parallel = true;  // disable_parallel_tool_use says it here
  fields.Bool("parallel_tool_calls", &parallel);
  ParseChatEnd(fields, &request);
  request.ignored.insert(request.ignored.end(), ignored.begin(), ignored.end());
  return Parsed(fields, std::move(request), std::move(grammar), std::move(grammar_field));
}

}  // namespace

std::variant<Request, Error> ParseMessagesRequest(const Json& body, const RequestDefaults& defaults) {
  return ParseAnthropic(body, defaults, true);
}

std::variant<Request, Error> ParseCountTokensRequest(const Json& body, const RequestDefaults& defaults) {
  return ParseAnthropic(body, defaults, false);
}

}  // namespace longspec::api
