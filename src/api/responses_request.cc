// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "api/field_rules.h"
#include "api/fields.h"
#include "api/grammar_fields.h"
#include "api/messages.h"
#include "api/responses.h"
#include "api/shared_fields.h"
#include "api/tools.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNothingKept = "nothing is stored: send the whole conversation as input";

// What has no parser of its own here and is no field of a chat, too.
constexpr FieldRule kResponsesRules[] = {
    {"client_metadata"},
    {"max_tool_calls"},
    {"stream_options"},
    {"truncation", Treatment::kIgnored},
    {"context_management", Treatment::kIgnored},
    {"previous_response_id", Treatment::kRefused, kOfAll, "[]", kNothingKept},
    {"conversation", Treatment::kRefused, kOfAll, "[]", kNothingKept},
    {"background", Treatment::kRefused, kOfAll, "[false]", "an answer comes to who asked for it"},
    {"prompt", Treatment::kRefused, kOfAll, "[]", "input has the messages"},
    {"n", Treatment::kRefused, kOfAll, "[1]", kChatsGiveAnswers},
    {"n_cmpl", Treatment::kRefused, kOfAll, "[1]", kChatsGiveAnswers},
    {"logprobs", Treatment::kRefused, kOfAll, "[false]", kChatsGiveChances},
    {"top_logprobs", Treatment::kRefused, kOfAll, "[0]", kChatsGiveChances},
    {"n_probs", Treatment::kRefused, kOfAll, "[0]", kChatsGiveChances},
};

constexpr size_t kMostToolKinds = 8, kMostToolKind = 64;  // that are told of, and bytes of each

// What responses repeat of their requests.
constexpr const char* kRepeated[] = {"instructions",        "metadata", "text", "tool_choice", "tools",
                                     "parallel_tool_calls", "user"};

bool IsText(const std::string& type) {
  return type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
         type == "summary_text";
}

// The field `name`: a text, or parts of text.
std::string TextOf(Fields& item, const char* name) {
  const Json* content = item.Find(name);
  if (content == nullptr) {
    item.Missing(name);
    return {};
  }
  if (!content->is_array()) {
    std::string text;
    item.Text(name, &text);
    return text;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], item.PlaceOf(std::string(name) + "[" + std::to_string(i) + "]"));
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

// The first text that is there under one of the names.
std::string FirstText(Fields& item, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* name : names) {
    if (text.empty()) item.Text(name, &text);
  }
  if (text.empty()) item.Missing(*names.begin());
  return text;
}

// --- Calls of tools that are no functions, which agents have in their histories: as if they were. ---

// {"name": "apply_patch", "input": "*** Begin Patch ..."}
void ParseCustomCall(Fields& item, ChatTurns* turns) {
  std::string id = FirstText(item, {"call_id", "id"}), name, input;
  if (!item.Text("name", &name)) item.Missing("name");
  if (!item.Text("input", &input)) item.Missing("input");
  const Json arguments = {{"input", input}};
  turns->Call(std::move(id), std::move(name), WriteJson(arguments));
}

// {"action": {"type": "exec", "command": ["ls"]}}
void ParseShellCall(Fields& item, ChatTurns* turns) {
  std::string id = FirstText(item, {"call_id", "id"});
  const Json* action = item.Find("action");
  if (action == nullptr || !action->is_object())
    return item.Fail("action", "must be an object", "invalid_type");
  Json arguments = *action;
  arguments.erase("type");
  turns->Call(std::move(id), "local_shell", WriteJson(arguments));
}

void ParseCallOutput(Fields& item, ChatTurns* turns) {
  std::string id = FirstText(item, {"call_id", "id"});
  std::string text = TextOf(item, "output");
  turns->Result(std::move(id), std::move(text));
}

void ParseItem(Fields& item, ChatTurns* turns) {
  std::string type = "message", role, id, name, text;
  item.Text("type", &type);
  if (type == "message") {
    if (!item.Text("role", &role)) item.Missing("role");
    text = TextOf(item, "content");
    if (!item.error()) turns->Say(role, std::move(text));
  } else if (type == "function_call") {
    if (!item.Text("call_id", &id)) item.Missing("call_id");
    if (!item.Text("name", &name)) item.Missing("name");
    if (!item.Text("arguments", &text)) item.Missing("arguments");
    turns->Call(std::move(id), std::move(name), std::move(text));
  } else if (type == "custom_tool_call") {
    ParseCustomCall(item, turns);
  } else if (type == "local_shell_call") {
    ParseShellCall(item, turns);
  } else if (type == "function_call_output" || type == "custom_tool_call_output" ||
             type == "local_shell_call_output") {
    ParseCallOutput(item, turns);
  } else if (type == "web_search_call") {
    // It says that there was a search, not what it found.
  } else if (type == "reasoning") {
    // What it thought; where that is not there, what was said of it.
    for (const char* part : {"content", "summary"}) {
      if (text.empty() && item.Find(part) != nullptr) text = TextOf(item, part);
    }
    if (!text.empty()) turns->Think(text);
  } else {
    item.Fail("type", "\"" + type + "\" is not supported: messages, functions' calls and their outputs are",
              "unsupported_value");
  }
}

void ParseInput(Fields& fields, ChatTurns* turns) {
  const Json* input = fields.Find("input");
  if (input == nullptr) return fields.Missing("input");
  if (input->is_string()) return turns->Say("user", *input);
  if (!input->is_array()) return fields.Fail("input", "must be a text or a list of items", "invalid_type");
  const size_t n_before = turns->size();
  for (size_t i = 0; i < input->size(); ++i) {
    Fields item((*input)[i], "input[" + std::to_string(i) + "]");
    ParseItem(item, turns);
    if (item.error()) return fields.Fail(*item.error());
  }
  if (turns->size() == n_before) fields.Fail("input", "must hold a message", "invalid_value");
}

// What an answer is to have besides: of what nothing here has it may be asked for, chances of tokens there
// are, but not in this form.
void ParseInclude(Fields& fields) {
  const Json* include = fields.Find("include");
  if (include == nullptr) return;
  if (!include->is_array()) return fields.Fail("include", "must be a list of texts", "invalid_type");
  if (std::ranges::find(*include, Json("message.output_text.logprobs")) != include->end()) {
    fields.Fail("include",
                "of message.output_text.logprobs is not supported: " + std::string(kChatsGiveChances),
                "unsupported_value");
  }
}

// "none", "auto", "required" or {"type": "function", "name": "f"}.
void ParseFunctionChoice(Fields& fields, chat::ToolUse* use) {
  using chat::ToolChoice;
  use->choice = use->tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const Json* value = fields.Find("tool_choice");
  if (value == nullptr || *value == "auto") return;
  if (*value == "none") {
    use->choice = ToolChoice::kNone;
  } else if (*value == "required") {
    if (use->tools.empty()) fields.Fail("tool_choice", "needs functions in tools", "invalid_value");
    use->choice = ToolChoice::kRequired;
  } else if (value->is_object() && value->value("type", Json()) == "function") {
    const Json name = value->value("name", Json());
    if (!name.is_string() || !chat::ChooseTool(name.get_ref<const std::string&>(), use))
      fields.Fail("tool_choice.name", "must be that of a function in tools", "invalid_value");
  } else {
    fields.Fail("tool_choice", "must be \"none\", \"auto\", \"required\" or the name of a function",
                "invalid_value");
  }
}

// Tools of other kinds, which clients offer to every model, are `ignored`, each kind once.
void ParseFunctions(Fields& fields, chat::ToolUse* use, std::vector<std::string>* ignored) {
  if (const Json* tools = fields.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) return fields.Fail("tools", "must be a list", "invalid_type");
    for (size_t i = 0; i < tools->size() && !fields.error(); ++i) {
      Fields inner((*tools)[i], "tools[" + std::to_string(i) + "]");
      std::string type;
      if (!inner.Text("type", &type)) inner.Missing("type");
      chat::Tool tool;
      if (type == "function") ParseFunction(inner, "parameters", &tool);
      if (inner.error()) return fields.Fail(*inner.error());
      if (type == "function") {
        AddTool(fields, std::move(tool), use);
      } else if (const std::string kind = "tools: " + type.substr(0, kMostToolKind);
                 std::ranges::find(*ignored, kind) == ignored->end() && ignored->size() < kMostToolKinds) {
        ignored->push_back(kind);
      }
    }
  }
  fields.Bool("parallel_tool_calls", &use->parallel);
  ParseFunctionChoice(fields, use);
}

}  // namespace

std::variant<Request, Error> ParseResponsesRequest(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  ChatTurns turns;
  chat::ToolUse tools;
  GrammarText grammar;
  std::string instructions, effort;
  std::vector<std::string> ignored;
  if (fields.Text("instructions", &instructions) && !instructions.empty()) turns.Say("system", instructions);
  ParseInput(fields, &turns);
  ParseFunctions(fields, &tools, &ignored);
  ParseInclude(fields);
  KeepRules(kResponsesRules, kOfAll, fields, &ignored);
  if (const auto* text = fields.Find("text"); text != nullptr) {
    Fields inside(*text, "text");
    ParseResponseFormat(inside, "format", &grammar);
    if (inside.Find("verbosity") != nullptr) ignored.emplace_back("text.verbosity");
    if (inside.error()) fields.Fail(*inside.error());
  }
  if (const auto* reasoning = fields.Find("reasoning"); reasoning != nullptr) {
    Fields inside(*reasoning, "reasoning");
    inside.Text("effort", &effort);
    if (inside.error()) fields.Fail(*inside.error());
  }
  int limit = 0;
  const bool limited = fields.Integer("max_output_tokens", -1, 1 << 30, &limit);
  Json repeated = Json::object();
  for (const char* name : kRepeated) {
    if (const Json* value = fields.Find(name); value != nullptr) repeated[name] = *value;
  }
  if (fields.error()) return *fields.error();
  fields.HideKnown();
  if (limited) fields.Set("max_tokens", limit);
  if (!effort.empty() && fields.Find("reasoning_effort") == nullptr) fields.Set("reasoning_effort", effort);
  Request request = ParseSharedFields(Endpoint::kChatCompletions, fields, defaults);
  request.repeated = std::move(repeated);
  request.generation.messages = turns.Take(fields);
  request.tools = std::move(tools);
  ParseChatEnd(fields, &request);
  request.ignored.insert(request.ignored.end(), ignored.begin(), ignored.end());
  return Parsed(fields, std::move(request), std::move(grammar), "text.format");
}

}  // namespace longspec::api
