// SPDX-License-Identifier: Apache-2.0
//
// Reads calls of tools out of an answer's text, as it comes: what is said and what is called, in the pieces
// in which OpenAI's API streams them. Not thread-safe; no model, no vocabulary.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "openai/tools.h"

namespace longspec::openai {

// A part of a call. The first one of an index has the name, those after it more of the arguments.
struct ToolCallPiece {
  int index = 0;
  std::string name;  // empty: not the first part
  std::string arguments;
};

struct AnswerPiece {
  std::string content;  // text that is no call
  std::vector<ToolCallPiece> calls;
};

class ToolCallReader {
 public:
  explicit ToolCallReader(ToolFormat format) : format_(format) {}

  // The next piece of text. What may yet be the beginning of a call is held back. Text that begins like a
  // call and is none is content.
  AnswerPiece Push(std::string_view text);
  // The text has ended: what was held back. A call that was cut short keeps what it has.
  AnswerPiece Finish();

  int n_calls() const { return n_calls_; }

 private:
  enum class State : uint8_t { kText, kHead, kArguments, kTail };

  bool Step(bool at_end, AnswerPiece& out);
  bool ReadText(bool at_end, AnswerPiece& out);
  bool ReadHead(bool at_end, AnswerPiece& out);
  bool ReadArguments(AnswerPiece& out);
  bool ReadTail(bool at_end);
  std::string_view Trigger() const;

  ToolFormat format_;
  State state_ = State::kText;
  std::string held_;         // not looked at to its end
  bool in_list_ = false;     // of calls between one pair of tags
  bool after_call_ = false;  // white space that only parts calls is no content
  int depth_ = 0;            // of brackets in the arguments
  bool in_string_ = false, escaped_ = false;
  int n_calls_ = 0;
};

// {"index", "id", "type": "function", "function": {"name", "arguments"}} for a piece, as a stream has it;
// `id` is that of the answer. Without id, type and name where it is not the first.
nlohmann::ordered_json ToolCallDeltaJson(const ToolCallPiece& piece, const std::string& id);

// Moves the calls in the texts of a chat response (responses.h) to where OpenAI's API has them:
// message.tool_calls, finish_reason "tool_calls", content null if nothing is said. `id` is that of the
// answer.
void MoveToolCalls(ToolFormat format, const std::string& id, nlohmann::ordered_json* response);

}  // namespace longspec::openai
