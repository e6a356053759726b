// SPDX-License-Identifier: Apache-2.0
//
// Calls of models whose template knows nothing of tools, in the words of SmolLM2's model card: a list of
// objects of JSON between two tags.
#include <utility>

#include "chat/tool_form.h"
#include "chat/tool_history.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

std::string Introduction(const ToolUse& use) {
  const Json functions = Definitions(use);
  return "You are an expert in composing functions. You are given a question and a set of possible "
         "functions. "
         "Based on the question, you will need to make one or more function/tool calls to achieve the "
         "purpose. "
         "If none of the functions can be used, point it out and refuse to answer. "
         "If the given question lacks the parameters required by the function, also point it out.\n\n"
         "You have access to the following tools:\n<tools>" +
         WriteJson(functions) +
         "</tools>\n\nThe output MUST strictly adhere to the following format, and NO other text MUST be "
         "included.\n"
         "The example format is as follows. Please make sure the parameter type is correct. If no function "
         "call is "
         "needed, please make the tool calls an empty list '[]'.\n<tool_call>[\n"
         "{\"name\": \"func_name1\", \"arguments\": {\"argument1\": \"value1\", \"argument2\": "
         "\"value2\"}},\n"
         "... (more tool calls as required)\n]</tool_call>";
}

void TellAsText(const ToolUse& use, GenerationRequest& generation) {
  std::vector<Message>& messages = generation.messages;
  SpellOutCalls(messages);
  if (!use.offered()) return;
  if (messages.empty() || messages.front().role != "system")
    messages.insert(messages.begin(), {"system", ""});
  std::string& system = messages.front().content;
  system = Introduction(use) + (system.empty() ? "" : "\n\n" + system);
}

Json GenericCalls(const ToolUse& use) {
  Json tags = Json::array();
  for (const Tool& tool : use.tools) tags.push_back(JsonCallTag("", "arguments", "", tool));
  const Json list = {{"type", "tags_with_separator"},
                     {"tags", std::move(tags)},
                     {"separator", ", "},
                     {"at_least_one", use.choice == ToolChoice::kRequired},
                     {"stop_after_first", !use.parallel}};
  ToolUse once = use;
  once.parallel = false;  // one list
  return TriggeredCalls(
      "<tool_call>", Json::array({{{"begin", "<tool_call>["}, {"content", list}, {"end", "]</tool_call>"}}}),
      ToolFormat::kGeneric, once);
}

}  // namespace

constinit const ToolForm kGenericForm = {.format = ToolFormat::kGeneric,
                                         .is_shown = [](std::string_view) { return true; },
                                         .tell = TellAsText,
                                         .calls = GenericCalls};

}  // namespace longspec::chat
