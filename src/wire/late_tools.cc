// SPDX-License-Identifier: Apache-2.0
#include "wire/late_tools.h"

#include <algorithm>
#include <utility>

#include "openai/json.h"

namespace longspec::wire {
namespace {

using chat::Tool;

auto Named(std::vector<Tool>& tools, const std::string& name) {
  return std::ranges::find(tools, name, &Tool::name);
}

}  // namespace

std::string LateTools::Announce(const std::string& name) {
  const auto tool = Named(deferred_, name);
  if (tool != deferred_.end()) return Announce(Tool(*tool));
  std::erase(withdrawn_, name);
  return "The function " + name + " can be called.";
}

std::string LateTools::Announce(Tool tool) {
  std::erase(withdrawn_, tool.name);
  const bool is_known = Named(announced_, tool.name) != announced_.end();
  std::string text = "<tools>\n" + openai::DumpJson(tool.definition) + "\n</tools>";
  if (is_known) *Named(announced_, tool.name) = std::move(tool);
  if (!is_known) announced_.push_back(std::move(tool));
  return text;
}

std::string LateTools::Withdraw(const std::string& name) {
  if (std::ranges::find(withdrawn_, name) == withdrawn_.end()) withdrawn_.push_back(name);
  return "The function " + name + " can no longer be called.";
}

void LateTools::Join(openai::Fields& fields, chat::ToolUse* use) const {
  const auto is_out = [&](const Tool& tool) {
    return std::ranges::find(withdrawn_, tool.name) != withdrawn_.end();
  };
  std::erase_if(use->tools, is_out);
  for (Tool tool : announced_) {
    if (is_out(tool)) continue;
    // A new one of an old name takes its place.
    std::erase_if(use->tools, [&](const Tool& other) { return other.name == tool.name; });
    tool.is_announced = true;
    openai::AddTool(fields, std::move(tool), use);
  }
}

}  // namespace longspec::wire
