// SPDX-License-Identifier: Apache-2.0
//
// Calls as Llama 3.1 and 3.2 write them: objects of JSON with nothing around them.
#include <utility>

#include "chat/tool_form.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

bool ShowsLlama3(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
  return has("tools") && (has("<|python_tag|>") || has("\"parameters\": dictionary"));
}

Json Llama3Calls(const ToolUse& use) {
  Json tags = Json::array();
  for (const Tool& tool : use.tools) tags.push_back(JsonCallTag("", "parameters", "", tool));
  return TriggeredCalls("{\"name\": ", std::move(tags), ToolFormat::kLlama3, use);
}

}  // namespace

constinit const ToolForm kLlama3Form = {
    .format = ToolFormat::kLlama3, .is_shown = ShowsLlama3, .tell = TellTemplate, .calls = Llama3Calls};

}  // namespace longspec::chat
