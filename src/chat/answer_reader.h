// SPDX-License-Identifier: Apache-2.0
//
// Reads an answer's text as it comes: what is thought, what is said and what is called. Every API shows these
// in its own form. Not thread-safe; no model, no vocabulary.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "chat/answer_parts.h"
#include "chat/channels.h"
#include "chat/dialect.h"
#include "chat/thinking.h"
#include "chat/tool_calls.h"

namespace longspec::chat {

// How an answer is read. What has no form is all said.
struct ReadingForm {
  std::optional<ThinkingForm> thinking = {};  // not beside channels
  std::optional<ChannelForm> channels = {};
  std::shared_ptr<const CallForm> calls = {};

  bool reads() const { return thinking || channels || calls != nullptr; }
};

class AnswerReader {
 public:
  explicit AnswerReader(const ReadingForm& form);

  // The next piece of text; what may yet become something else is held back.
  AnswerParts Push(std::string_view text);
  // The text has ended: what was held back.
  AnswerParts Finish();
  // All of a text, where nothing was pushed before: each call is one part.
  AnswerParts ReadWhole(std::string_view text);

  // Once the text has ended: something is called, and no call was cut short.
  bool has_whole_calls() const { return channels_ ? channels_->has_whole_calls() : calls_.has_whole_calls(); }

 private:
  AnswerParts Parts(ThinkingReader::Parts parts, AnswerParts said) const;

  std::optional<ChannelReader> channels_;  // else the other two
  ThinkingReader thinking_;
  ToolCallReader calls_;
  bool shows_thoughts_;
};

// The text of an answer as the content of a message in what follows. Templates take thoughts between tags out
// themselves; of channels there is only what was said in it.
std::string ContentOf(const Dialect& dialect, const std::string& text);

}  // namespace longspec::chat
