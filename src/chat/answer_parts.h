// SPDX-License-Identifier: Apache-2.0
//
// What an answer's text is made of, for APIs to show each in its own form.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace longspec::chat {

// A part of a call. The first one of an index has the name, those after it more of the arguments.
struct ToolCallPiece {
  int index = 0;
  std::string name;  // empty: not the first part
  std::string arguments;
};

// What the model thinks before it speaks.
struct Thought {
  std::string text;
};

// What is thought and what is said, none of it empty, and what is called, in the order in which it was
// written.
using AnswerParts = std::vector<std::variant<std::string, Thought, ToolCallPiece>>;

// Appends what is not empty, to the last part if it is of the same kind and, if it is called, the same call.
void Say(std::string_view text, AnswerParts& parts);
void Think(std::string_view text, AnswerParts& parts);
void Call(ToolCallPiece piece, AnswerParts& parts);
void Append(AnswerParts more, AnswerParts& parts);

}  // namespace longspec::chat
