// SPDX-License-Identifier: Apache-2.0
#include "wire/chat_turns.h"

#include <utility>

namespace longspec::wire {

void ChatTurns::Say(const std::string& role, std::string text) {
  if (std::exchange(only_thought_, false) && role == "assistant") {
    messages_.back()["content"] = std::move(text);
  } else {
    messages_.push_back({{"role", role}, {"content", std::move(text)}});
  }
}

void ChatTurns::Think(const std::string& text) {
  if (!only_thought_) {
    Say("assistant", "");
    messages_.back()["reasoning_content"] = "";
    only_thought_ = true;
  }
  messages_.back()["reasoning_content"].get_ref<std::string&>() += text;
}

void ChatTurns::Call(std::string id, std::string name, std::string arguments) {
  if (messages_.empty() || messages_.back()["role"] != "assistant") Say("assistant", "");
  only_thought_ = false;
  nlohmann::ordered_json function = {{"name", std::move(name)}, {"arguments", std::move(arguments)}};
  messages_.back()["tool_calls"].push_back(
      {{"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}});
}

void ChatTurns::Result(std::string id, std::string text) {
  only_thought_ = false;
  messages_.push_back({{"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(text)}});
}

nlohmann::ordered_json ChatTurns::Take() { return std::exchange(messages_, nlohmann::ordered_json::array()); }

}  // namespace longspec::wire
