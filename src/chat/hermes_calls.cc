// SPDX-License-Identifier: Apache-2.0
//
// Calls as Hermes, Qwen 2.5 and Qwen 3 write them: objects of JSON, each between two tags.
#include <utility>

#include "chat/tool_form.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

bool ShowsHermes(std::string_view source) {
  return source.find("tools") != std::string_view::npos &&
         source.find("<tool_call>") != std::string_view::npos;
}

Json HermesCalls(const ToolUse& use) {
  Json tags = Json::array();
  for (const Tool& tool : use.tools)
    tags.push_back(JsonCallTag("<tool_call>\n", "arguments", "\n</tool_call>", tool));
  return TriggeredCalls("<tool_call>", std::move(tags), ToolFormat::kHermes, use);
}

}  // namespace

constinit const ToolForm kHermesForm = {
    .format = ToolFormat::kHermes, .is_shown = ShowsHermes, .tell = TellTemplate, .calls = HermesCalls};

}  // namespace longspec::chat
