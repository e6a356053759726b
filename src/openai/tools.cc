// SPDX-License-Identifier: Apache-2.0
#include "openai/tools.h"

#include <algorithm>
#include <utility>

#include "chat/channels.h"
#include "chat/thinking.h"
#include "chat/tool_form.h"
#include "chat/tool_history.h"
#include "openai/answer_form.h"
#include "openai/fields.h"
#include "openai/json.h"
#include "openai/requests.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostTools = 128;

std::optional<ApiError> ParseTool(const Json& json, const std::string& place, chat::Tool* tool) {
  Fields fields(json, place);
  std::string type;
  if (!fields.Text("type", &type)) fields.Missing("type");
  if (!type.empty() && type != "function") fields.Fail("type", "must be \"function\"", "unsupported_value");
  const Json* function = fields.Find("function");
  if (function == nullptr) fields.Missing("function");
  if (fields.error()) return fields.error();
  Fields inner(*function, fields.PlaceOf("function"));
  ParseFunction(inner, "parameters", tool);
  tool->definition = json;
  return inner.error();
}

// "none", "auto", "required" or {"type": "function", "function": {"name": "f"}}.
void ParseChoice(Fields& fields, chat::ToolUse* use) {
  use->choice = use->tools.empty() ? chat::ToolChoice::kNone : chat::ToolChoice::kAuto;
  const Json* value = fields.Find("tool_choice");
  if (value == nullptr) return;
  if (*value == "none" || *value == "auto" || *value == "required") {
    const bool required = *value == "required";
    if (required && use->tools.empty()) return fields.Fail("tool_choice", "needs tools", "invalid_value");
    if (*value == "none") use->choice = chat::ToolChoice::kNone;
    if (required) use->choice = chat::ToolChoice::kRequired;
    return;
  }
  const bool named = value->is_object() && value->contains("function") && (*value)["function"].is_object() &&
                     (*value)["function"].contains("name");
  if (!named) {
    return fields.Fail("tool_choice", "must be \"none\", \"auto\", \"required\" or the name of a function",
                       "invalid_value");
  }
  const Json& name = (*value)["function"]["name"];
  if (!name.is_string() || !chat::ChooseTool(name.get_ref<const std::string&>(), use))
    fields.Fail("tool_choice", "names a function that tools does not have", "invalid_value");
}

std::optional<ApiError> CheckStrict(const chat::ToolForm& form, const chat::Tool& tool) {
  const std::string rule = tool.strict ? form.rule_not_kept(tool) : "";
  if (rule.empty()) return std::nullopt;
  return ApiError{.message = "tools: the function " + tool.name +
                             " is strict, but this model's calls cannot be held to " + rule,
                  .param = "tools",
                  .code = "unsupported_value"};
}

}  // namespace

void ParseFunction(Fields& fields, std::string_view schema, chat::Tool* tool) {
  if (!fields.Text("name", &tool->name)) fields.Missing("name");
  if (!fields.error() && !chat::IsToolName(tool->name))
    fields.Fail("name", "must have from 1 to 64 letters, digits, \"_\", \"-\" and \".\"", "invalid_value");
  fields.Bool("strict", &tool->strict);
  Json function = {{"name", tool->name}};
  std::string description;
  if (fields.Text("description", &description)) function["description"] = std::move(description);
  if (const Json* parameters = fields.Find(schema); parameters != nullptr) {
    if (!parameters->is_object()) fields.Fail(schema, "must be a JSON schema", "invalid_type");
    tool->parameters = *parameters;
    function["parameters"] = *parameters;
  } else {
    tool->parameters = {{"type", "object"}, {"additionalProperties", false}};
  }
  tool->definition = {{"type", "function"}, {"function", std::move(function)}};
}

void AddTool(Fields& fields, chat::Tool tool, chat::ToolUse* use) {
  if (use->tools.size() == kMostTools) {
    return fields.Fail("tools", "must be a list of up to " + std::to_string(kMostTools) + " functions",
                       "invalid_value");
  }
  if (std::ranges::any_of(use->tools, [&](const chat::Tool& other) { return other.name == tool.name; }))
    return fields.Fail("tools", "has two functions with the name " + tool.name, "invalid_value");
  use->tools.push_back(std::move(tool));
}

void ParseTools(Fields& fields, chat::ToolUse* use) {
  if (const Json* tools = fields.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) return fields.Fail("tools", "must be a list of functions", "invalid_type");
    for (size_t i = 0; i < tools->size() && !fields.error(); ++i) {
      chat::Tool tool;
      auto error = ParseTool((*tools)[i], "tools[" + std::to_string(i) + "]", &tool);
      if (error) return fields.Fail(*std::move(error));
      AddTool(fields, std::move(tool), use);
    }
  }
  fields.Bool("parallel_tool_calls", &use->parallel);
  ParseChoice(fields, use);
}

void ParseToolMembers(Fields& fields, Message* message) {
  Json more = Json::object();
  std::string id, name;
  if (fields.Text("tool_call_id", &id)) more["tool_call_id"] = id;
  if (fields.Text("name", &name) && message->role == "tool") more["name"] = name;
  if (const Json* calls = fields.Find("tool_calls"); calls != nullptr && !calls->empty()) {
    const bool right = message->role == "assistant" && calls->is_array() &&
                       std::ranges::all_of(*calls, [](const Json& call) {
                         if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
                           return false;
                         const Json& function = call["function"];
                         return function.contains("name") && function["name"].is_string() &&
                                function.contains("arguments") &&
                                (function["arguments"].is_string() || function["arguments"].is_object());
                       });
    if (right) {
      more["tool_calls"] = chat::HeldCalls(*calls);
    } else {
      fields.Fail("tool_calls",
                  "must be an assistant's list of calls of functions, with a name and arguments",
                  "invalid_type");
    }
  }
  if (!more.empty()) message->more = DumpJson(more);
}

std::optional<ApiError> ApplyTools(const chat::Dialect& dialect, ApiRequest* request) {
  GenerationRequest& generation = request->generation;
  const chat::ToolUse& use = request->tools;
  if (dialect.thoughts_in_contents) chat::PutThoughtsIntoContents(generation);
  if (!use.offered() && !std::ranges::any_of(generation.messages, chat::IsOfCalls)) return std::nullopt;
  const chat::ToolForm& form = chat::FormOf(dialect.tools);
  form.tell(use, generation);
  if (!use.offered()) return std::nullopt;
  for (const chat::Tool& tool : use.tools) {
    if (auto error = CheckStrict(form, tool)) return error;
  }
  const auto set = [&](const Json& what) {
    const Json tag = {{"type", "structural_tag"}, {"format", what}};
    generation.grammar = {GrammarText::Kind::kStructuralTag, DumpJson(tag)};
  };
  if (request->grammar_field.empty() || use.choice == chat::ToolChoice::kRequired) {
    set(form.calls(use));
    request->grammar_field = "tools";
    return std::nullopt;
  }
  Json said = TagElementOf(generation.grammar);
  if (said.is_null()) {
    return ApiError{.message = "tools is not supported beside " + request->grammar_field +
                               ": a JSON schema or response_format can be",
                    .param = "tools",
                    .code = "unsupported_value"};
  }
  if (dialect.has_channels()) said = chat::InFinal(std::move(said));
  request->tools.text_has_form = true;
  chat::ToolUse called = request->tools;
  called.choice = chat::ToolChoice::kRequired;
  set({{"type", "or"}, {"elements", {form.calls(called), std::move(said)}}});
  return std::nullopt;
}

}  // namespace longspec::openai
