// SPDX-License-Identifier: Apache-2.0
#include "openai/tools.h"

#include <algorithm>
#include <utility>

#include "openai/answer_form.h"
#include "openai/arguments_form.h"
#include "openai/fields.h"
#include "openai/json.h"
#include "openai/mistral_calls.h"
#include "openai/requests.h"
#include "openai/tagged_grammar.h"
#include "openai/tool_history.h"
#include "openai/untagged_calls.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostTools = 128;
constexpr size_t kMostNameBytes = 64;

std::optional<ApiError> ParseTool(const Json& json, const std::string& place, Tool* tool) {
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
void ParseChoice(Fields& fields, ToolUse* use) {
  use->choice = use->tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const Json* value = fields.Find("tool_choice");
  if (value == nullptr) return;
  if (*value == "none" || *value == "auto" || *value == "required") {
    const bool required = *value == "required";
    if (required && use->tools.empty()) return fields.Fail("tool_choice", "needs tools", "invalid_value");
    if (*value == "none") use->choice = ToolChoice::kNone;
    if (required) use->choice = ToolChoice::kRequired;
    return;
  }
  const bool named = value->is_object() && value->contains("function") && (*value)["function"].is_object() &&
                     (*value)["function"].contains("name");
  if (!named) {
    return fields.Fail("tool_choice", "must be \"none\", \"auto\", \"required\" or the name of a function",
                       "invalid_value");
  }
  const Json& name = (*value)["function"]["name"];
  if (!name.is_string() || !ChooseTool(name.get_ref<const std::string&>(), use))
    fields.Fail("tool_choice", "names a function that tools does not have", "invalid_value");
}

// --- How the model is told. ---

// What stands before the conversation. Where that tells of none, the model would not know how one is called.
Json Definitions(const ToolUse& use) {
  Json all = Json::array(), first = Json::array();
  for (const Tool& tool : use.tools) {
    all.push_back(tool.definition);
    if (!tool.is_announced) first.push_back(tool.definition);
  }
  return first.empty() ? all : first;
}

// For models whose template knows nothing of tools, in the words of SmolLM2's model card.
std::string Introduction(const ToolUse& use) {
  const Json functions = Definitions(use);
  return "You are an expert in composing functions. You are given a question and a set of possible "
         "functions. "
         "Based on the question, you will need to make one or more function/tool calls to achieve the "
         "purpose. "
         "If none of the functions can be used, point it out and refuse to answer. "
         "If the given question lacks the parameters required by the function, also point it out.\n\n"
         "You have access to the following tools:\n<tools>" +
         DumpJson(functions) +
         "</tools>\n\nThe output MUST strictly adhere to the following format, and NO other text MUST be "
         "included.\n"
         "The example format is as follows. Please make sure the parameter type is correct. If no function "
         "call is "
         "needed, please make the tool calls an empty list '[]'.\n<tool_call>[\n"
         "{\"name\": \"func_name1\", \"arguments\": {\"argument1\": \"value1\", \"argument2\": "
         "\"value2\"}},\n"
         "... (more tool calls as required)\n]</tool_call>";
}

void Tell(ToolFormat format, const ToolUse& use, GenerationRequest& generation) {
  std::vector<Message>& messages = generation.messages;
  if (format == ToolFormat::kGeneric) {
    SpellOutCalls(messages);
    if (!use.offered()) return;
    if (messages.empty() || messages.front().role != "system")
      messages.insert(messages.begin(), {"system", ""});
    std::string& system = messages.front().content;
    system = Introduction(use) + (system.empty() ? "" : "\n\n" + system);
    return;
  }
  if (IsMistrals(format)) ShortenIds(messages);
  TellCalls(messages);
  if (!use.offered()) return;
  Json variables = Json::object();
  if (!generation.template_variables.empty()) variables = LoadJson(generation.template_variables);
  variables["tools"] = Definitions(use);
  generation.template_variables = DumpJson(variables);
}

// --- What form calls have: structural tags of xgrammar. ---

Json CallTag(const std::string& begin, const char* arguments, const std::string& end, const Tool& tool) {
  return {{"begin", begin + "{\"name\": \"" + tool.name + "\", \"" + arguments + "\": "},
          {"content", ArgumentsForm(tool)},
          {"end", "}" + end}};
}

Json Triggered(std::string_view trigger, Json tags, ToolFormat format, const ToolUse& use) {
  Json triggers = Json::array({trigger});
  const bool holds_untagged = HoldsUntagged(use);
  for (const Tool& tool : use.tools) {
    if (!tool.strict || !holds_untagged) continue;
    for (Json& tag : UntaggedCallTags(format, tool)) {
      triggers.push_back(tag["begin"]);
      tags.push_back(std::move(tag));
    }
  }
  return {{"type", "triggered_tags"},
          {"triggers", std::move(triggers)},
          {"tags", std::move(tags)},
          {"at_least_one", use.choice == ToolChoice::kRequired},
          {"stop_after_first", !use.parallel}};
}

Json FormOfCalls(ToolFormat format, const ToolUse& use) {
  if (IsMistrals(format)) {
    ToolUse tagged = use;  // of lists there is one
    tagged.parallel = use.parallel && format == ToolFormat::kMistral;
    return Triggered(kMistralCalls, MistralCallTags(format, use), format, tagged);
  }
  Json tags = Json::array();
  for (const Tool& tool : use.tools) {
    if (format == ToolFormat::kTagged) tags.push_back(TaggedCallTag(tool));
    if (format == ToolFormat::kHermes)
      tags.push_back(CallTag("<tool_call>\n", "arguments", "\n</tool_call>", tool));
    if (format == ToolFormat::kLlama3) tags.push_back(CallTag("", "parameters", "", tool));
    if (format == ToolFormat::kGeneric) tags.push_back(CallTag("", "arguments", "", tool));
  }
  if (format == ToolFormat::kHermes || format == ToolFormat::kTagged)
    return Triggered("<tool_call>", std::move(tags), format, use);
  if (format == ToolFormat::kLlama3) return Triggered("{\"name\": ", std::move(tags), format, use);
  const Json list = {{"type", "tags_with_separator"},
                     {"tags", std::move(tags)},
                     {"separator", ", "},
                     {"at_least_one", use.choice == ToolChoice::kRequired},
                     {"stop_after_first", !use.parallel}};
  ToolUse once = use;
  once.parallel = false;  // one list
  return Triggered("<tool_call>",
                   Json::array({{{"begin", "<tool_call>["}, {"content", list}, {"end", "]</tool_call>"}}}),
                   format, once);
}

std::optional<ApiError> CheckStrict(const Tool& tool) {
  const std::string rule = tool.strict ? RuleNotKept(tool) : "";
  if (rule.empty()) return std::nullopt;
  return ApiError{.message = "tools: the function " + tool.name +
                             " is strict, but this model's calls cannot be held to " + rule,
                  .param = "tools",
                  .code = "unsupported_value"};
}

}  // namespace

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

std::shared_ptr<const CallForm> CallFormOf(ToolFormat format, const ToolUse& use) {
  if (!use.offered()) return nullptr;
  return std::make_shared<const CallForm>(
      CallForm{format, use.tools, use.parallel, !use.text_has_form, HoldsUntagged(use)});
}

void ParseFunction(Fields& fields, std::string_view schema, Tool* tool) {
  if (!fields.Text("name", &tool->name)) fields.Missing("name");
  if (!fields.error() && !IsToolName(tool->name))
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

void AddTool(Fields& fields, Tool tool, ToolUse* use) {
  if (use->tools.size() == kMostTools) {
    return fields.Fail("tools", "must be a list of up to " + std::to_string(kMostTools) + " functions",
                       "invalid_value");
  }
  if (std::ranges::any_of(use->tools, [&](const Tool& other) { return other.name == tool.name; }))
    return fields.Fail("tools", "has two functions with the name " + tool.name, "invalid_value");
  use->tools.push_back(std::move(tool));
}

bool ChooseTool(std::string_view name, ToolUse* use) {
  const auto tool = std::ranges::find_if(use->tools, [&](const Tool& t) { return name == t.name; });
  if (tool == use->tools.end()) return false;
  use->tools = {Tool(*tool)};
  use->choice = ToolChoice::kRequired;
  use->parallel = false;
  return true;
}

void ParseTools(Fields& fields, ToolUse* use) {
  if (const Json* tools = fields.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) return fields.Fail("tools", "must be a list of functions", "invalid_type");
    for (size_t i = 0; i < tools->size() && !fields.error(); ++i) {
      Tool tool;
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
      more["tool_calls"] = HeldCalls(*calls);
    } else {
      fields.Fail("tool_calls",
                  "must be an assistant's list of calls of functions, with a name and arguments",
                  "invalid_type");
    }
  }
  if (!more.empty()) message->more = DumpJson(more);
}

ToolFormat ToolFormatOf(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  if (!has("tools")) return ToolFormat::kGeneric;
  if (has("<tool_call>")) return has("<function=") ? ToolFormat::kTagged : ToolFormat::kHermes;
  if (has(kMistralCalls)) return has(kMistralArguments) ? ToolFormat::kMistral : ToolFormat::kMistralList;
  if (has("<|python_tag|>") || has("\"parameters\": dictionary")) return ToolFormat::kLlama3;
  return ToolFormat::kGeneric;
}

std::optional<ApiError> ApplyTools(ToolFormat format, ApiRequest* request) {
  GenerationRequest& generation = request->generation;
  const ToolUse& use = request->tools;
  if (!use.offered() && !std::ranges::any_of(generation.messages, IsOfCalls)) return std::nullopt;
  Tell(format, use, generation);
  if (!use.offered()) return std::nullopt;
  if (format == ToolFormat::kTagged) {
    for (const Tool& tool : use.tools) {
      if (auto error = CheckStrict(tool)) return error;
    }
  }
  const auto set = [&](const Json& form) {
    const Json tag = {{"type", "structural_tag"}, {"format", form}};
    generation.grammar = {GrammarText::Kind::kStructuralTag, DumpJson(tag)};
  };
  if (request->grammar_field.empty() || use.choice == ToolChoice::kRequired) {
    set(FormOfCalls(format, use));
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
  request->tools.text_has_form = true;
  ToolUse called = request->tools;
  called.choice = ToolChoice::kRequired;
  set({{"type", "or"}, {"elements", {FormOfCalls(format, called), std::move(said)}}});
  return std::nullopt;
}

}  // namespace longspec::openai
