// SPDX-License-Identifier: Apache-2.0
//
// The messages of a chat request: who says what, text only.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "api/fields.h"
#include "longspec/generation.h"

namespace longspec::api {

// Those of the field "messages", as OpenAI has them. The role "developer" is "system" for the templates of
// open models; parts of a content are joined by line breaks.
std::vector<Message> ParseMessages(Fields& fields);

// The field `name` of an object: a text, or a list of parts of type "text", joined by line breaks. Mistakes
// are the object's. Parts before `first` are passed over. REQUIRES: the field is there, or that is the
// mistake.
void ParseTextContent(Fields& fields, std::string_view name, std::string* content, size_t first = 0);

// Turns of a conversation as a chat request has them, made of what other APIs list: texts, thoughts, calls of
// tools and their results, each by itself.
class ChatTurns {
 public:
  void Say(const std::string& role, std::string text);
  // What the assistant thought: of its message that comes, or of the one before if that has no text yet.
  void Think(const std::string& text);
  // `arguments` is a text of JSON. A call joins the message before it if that is the assistant's.
  void Call(std::string id, std::string name, std::string arguments);
  void Result(std::string id, std::string text);

  size_t size() const { return turns_.size(); }  // messages so far
  // The messages. Mistakes are those of the field "messages".
  std::vector<Message> Take(Fields& fields);

 private:
  struct Turn {
    std::string role, text;
    std::optional<std::string> thought = {};  // the assistant's
    nlohmann::ordered_json calls = {};        // a list; null: none
    std::optional<std::string> call_id = {};  // of a result
  };

  std::vector<Turn> turns_;
  bool only_thought_ = false;  // the last one has neither text nor calls yet
};

}  // namespace longspec::api
