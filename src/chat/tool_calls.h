// SPDX-License-Identifier: Apache-2.0
//
// Reads calls of tools out of an answer's text, as it comes: what is said and what is called, in the pieces
// in which APIs stream them. Not thread-safe; no model, no vocabulary.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_parts.h"
#include "chat/call_heads.h"
#include "chat/held_text.h"
#include "chat/tagged_arguments.h"
#include "chat/tools.h"

namespace longspec::chat {

class ToolCallReader {
 public:
  // Without a form nothing is a call. Nothing is a thought here.
  explicit ToolCallReader(std::shared_ptr<const CallForm> form) : form_(std::move(form)) {}

  // The next piece of text. What may yet be the beginning of a call is held back. Text that begins like a
  // call and is none is content.
  AnswerParts Push(std::string_view text);
  // The text has ended: what was held back. A call that was cut short keeps what it has.
  AnswerParts Finish();
  // All of a text, where nothing was pushed before: each call is one part.
  AnswerParts ReadWhole(std::string_view text);

  int n_calls() const { return n_calls_; }
  // Once the text has ended: something is called, and no call was cut short.
  bool has_whole_calls() const { return n_calls_ > 0 && !InArguments(); }

 private:
  enum class State : uint8_t { kText, kNextOfList, kJson, kTagged, kTail, kMembers, kListTail };

  bool InArguments() const { return state_ == State::kJson || state_ == State::kTagged; }
  bool Step(bool at_end, AnswerParts& out);
  bool ReadText(bool at_end, AnswerParts& out);
  bool SkipBetweenCalls(bool at_end);
  bool ReadNext(bool at_end, AnswerParts& out);
  bool ReadJson(AnswerParts& out);
  bool ReadTagged(bool at_end, AnswerParts& out);
  bool ReadTail(bool at_end);
  bool ReadMembers();
  bool EndObject(size_t n);
  bool ReadListTail(bool at_end);
  bool Leave(State state, size_t n);
  void Begin(CallHead head, AnswerParts& out);
  void SayHeld(size_t n, AnswerParts& out);
  bool MayCall() const { return form_->parallel || n_calls_ == 0; }
  const nlohmann::ordered_json* ParametersOf(std::string_view name) const;

  std::shared_ptr<const CallForm> form_;
  State state_ = State::kText;
  std::string held_;  // not looked at to its end
  Column column_ = Column::kFresh;
  bool in_list_ = false, any_name_ = false;  // of calls between one pair of tags
  bool after_call_ = false;                  // white space that only parts calls is no content
  std::vector<std::string_view> closers_;    // that may follow, the outermost first
  JsonScanner scanner_;
  std::optional<TaggedArgumentsReader> tagged_;
  int n_calls_ = 0;
};

}  // namespace longspec::chat
