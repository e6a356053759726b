// SPDX-License-Identifier: Apache-2.0
#include "chat/tools.h"

#include <algorithm>

#include "chat/untagged_calls.h"

namespace longspec::chat {
namespace {

constexpr size_t kMostNameBytes = 64;

}  // namespace

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

bool ChooseTool(std::string_view name, ToolUse* use) {
  const auto tool = std::ranges::find(use->tools, name, &Tool::name);
  if (tool == use->tools.end()) return false;
  use->tools = {Tool(*tool)};
  use->choice = ToolChoice::kRequired;
  use->parallel = false;
  return true;
}

const Tool* CallForm::Find(std::string_view name) const {
  const auto tool = std::ranges::find(tools, name, &Tool::name);
  return tool == tools.end() ? nullptr : &*tool;
}

std::shared_ptr<const CallForm> CallFormOf(ToolFormat format, const ToolUse& use) {
  if (!use.offered()) return nullptr;
  return std::make_shared<const CallForm>(
      CallForm{format, use.tools, use.parallel, !use.text_has_form, HoldsUntagged(use)});
}

}  // namespace longspec::chat
