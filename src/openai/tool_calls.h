// SPDX-License-Identifier: Apache-2.0
//
// Reads calls of tools out of an answer's text, as it comes: what is said and what is called, in the pieces
// in which OpenAI's API streams them. Not thread-safe; no model, no vocabulary.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "openai/tools.h"

namespace longspec::openai {

// A part of a call. The first one of an index has the name, those after it more of the arguments.
struct ToolCallPiece {
  int index = 0;
  std::string name;  // empty: not the first part
  std::string arguments;
};

// What is said, none of it empty, and what is called, in the order in which it was written.
using AnswerParts = std::vector<std::variant<std::string, ToolCallPiece>>;

class ToolCallReader {
 public:
  // Without a format nothing is a call.
  explicit ToolCallReader(std::optional<ToolFormat> format) : format_(format) {}

  // The next piece of text. What may yet be the beginning of a call is held back. Text that begins like a
  // call and is none is content.
  AnswerParts Push(std::string_view text);
  // The text has ended: what was held back. A call that was cut short keeps what it has.
  AnswerParts Finish();
  // All of a text, where nothing was pushed before: each call is one part.
  AnswerParts ReadWhole(std::string_view text);

  int n_calls() const { return n_calls_; }
  // Once the text has ended: something is called, and no call was cut short.
  bool has_whole_calls() const { return n_calls_ > 0 && state_ != State::kArguments; }

 private:
  enum class State : uint8_t { kText, kHead, kArguments, kTail };

  bool Step(bool at_end, AnswerParts& out);
  bool ReadText(bool at_end, AnswerParts& out);
  bool ReadHead(bool at_end, AnswerParts& out);
  bool ReadArguments(AnswerParts& out);
  bool ReadTail(bool at_end);
  std::string_view Trigger() const;

  const std::optional<ToolFormat> format_;
  State state_ = State::kText;
  std::string held_;         // not looked at to its end
  bool in_list_ = false;     // of calls between one pair of tags
  bool after_call_ = false;  // white space that only parts calls is no content
  int depth_ = 0;            // of brackets in the arguments
  bool in_string_ = false, escaped_ = false;
  int n_calls_ = 0;
};

// {"index", "id", "type": "function", "function": {"name", "arguments"}} for a piece, as a stream has it;
// `id` is that of the response, and `choice` the answer's index in it. Without id, type and name where it is
// not the first.
nlohmann::ordered_json ToolCallDeltaJson(const ToolCallPiece& piece, const std::string& id, int choice);

// Moves the calls in the texts of a chat response (responses.h) to where OpenAI's API has them:
// message.tool_calls, finish_reason "tool_calls", content null if nothing is said. `id` is that of the
// response.
void MoveToolCalls(ToolFormat format, const std::string& id, nlohmann::ordered_json* response);

}  // namespace longspec::openai
