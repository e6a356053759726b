// SPDX-License-Identifier: Apache-2.0
//
// Turns of a conversation as a chat request has them, made of what other APIs list: texts, thoughts, calls of
// tools and their results, each by itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace longspec::wire {

class ChatTurns {
 public:
  void Say(const std::string& role, std::string text);
  // What the assistant thought: of its message that comes, or of the one before if that has no text yet.
  void Think(const std::string& text);
  // `arguments` is a text of JSON. A call joins the message before it if that is the assistant's.
  void Call(std::string id, std::string name, std::string arguments);
  void Result(std::string id, std::string text);

  size_t size() const { return messages_.size(); }  // messages so far
  nlohmann::ordered_json Take();

 private:
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  bool only_thought_ = false;  // the last message has neither text nor calls yet
};

}  // namespace longspec::wire
