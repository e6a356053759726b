// SPDX-License-Identifier: Apache-2.0
//
// Reads an answer's text as it comes: what is thought, what is said and what is called. Every API shows these
// in its own form. Not thread-safe; no model, no vocabulary.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "openai/thinking.h"
#include "openai/tool_calls.h"

namespace longspec::openai {

// How an answer is read. What has no form is all said.
struct ReadingForm {
  std::optional<ThinkingForm> thinking = {};
  std::shared_ptr<const CallForm> calls = {};

  bool reads() const { return thinking.has_value() || calls != nullptr; }
};

class AnswerReader {
 public:
  explicit AnswerReader(const ReadingForm& form)
      : thinking_(form.thinking),
        calls_(form.calls),
        shows_thoughts_(!form.thinking || form.thinking->shown) {}

  // The next piece of text; what may yet become something else is held back.
  AnswerParts Push(std::string_view text);
  // The text has ended: what was held back.
  AnswerParts Finish();
  // All of a text, where nothing was pushed before: each call is one part, and so are all thoughts.
  AnswerParts ReadWhole(std::string_view text);

  // Once the text has ended: something is called, and no call was cut short.
  bool has_whole_calls() const { return calls_.has_whole_calls(); }

 private:
  AnswerParts Parts(ThinkingReader::Parts parts, AnswerParts said) const;

  ThinkingReader thinking_;
  ToolCallReader calls_;
  const bool shows_thoughts_;
};

// Moves what is thought and called in the texts of a chat response (responses.h) to where its API has it:
// message.reasoning_content; message.tool_calls, finish_reason "tool_calls", content null if nothing is said.
// `id` is that of the response.
void MoveParts(const ReadingForm& form, const std::string& id, nlohmann::ordered_json* response);

}  // namespace longspec::openai
