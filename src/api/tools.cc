// SPDX-License-Identifier: Apache-2.0
#include "api/tools.h"

#include <algorithm>
#include <utility>

#include "api/fields.h"
#include "chat/tool_history.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostTools = 128;

std::optional<Error> ParseTool(const Json& json, const std::string& place, chat::Tool* tool) {
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

using chat::Tool;

auto Named(std::vector<Tool>& tools, const std::string& name) {
  return std::ranges::find(tools, name, &Tool::name);
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
  if (!more.empty()) message->more = WriteJson(more);
}

std::string LateTools::Announce(const std::string& name) {
  const auto tool = Named(deferred_, name);
  if (tool != deferred_.end()) return Announce(Tool(*tool));
  std::erase(withdrawn_, name);
  return "The function " + name + " can be called.";
}

std::string LateTools::Announce(Tool tool) {
  std::erase(withdrawn_, tool.name);
  const bool is_known = Named(announced_, tool.name) != announced_.end();
  std::string text = "<tools>\n" + WriteJson(tool.definition) + "\n</tools>";
  if (is_known) *Named(announced_, tool.name) = std::move(tool);
  if (!is_known) announced_.push_back(std::move(tool));
  return text;
}

std::string LateTools::Withdraw(const std::string& name) {
  if (std::ranges::find(withdrawn_, name) == withdrawn_.end()) withdrawn_.push_back(name);
  return "The function " + name + " can no longer be called.";
}

void LateTools::Join(Fields& fields, chat::ToolUse* use) const {
  const auto is_out = [&](const Tool& tool) {
    return std::ranges::find(withdrawn_, tool.name) != withdrawn_.end();
  };
  std::erase_if(use->tools, is_out);
  for (Tool tool : announced_) {
    if (is_out(tool)) continue;
    // A new one of an old name takes its place.
    std::erase_if(use->tools, [&](const Tool& other) { return other.name == tool.name; });
    tool.is_announced = true;
    AddTool(fields, std::move(tool), use);
  }
}

}  // namespace longspec::api
