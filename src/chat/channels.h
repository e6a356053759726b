// SPDX-License-Identifier: Apache-2.0
//
// Answers of gpt-oss, which are messages, each in a channel (OpenAI's harmony format). The prompt ends with
// the beginning of the first one, "<|start|>assistant".
//
//   <|channel|>analysis<|message|>thoughts<|end|>
//   <|start|>assistant<|channel|>final<|message|>what is said<|return|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
//
// Who is called may stand before the channel, too. <|return|> and <|call|> end the answer; the other marks
// are part of its text. Not thread-safe; no model, no vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "chat/answer_parts.h"
#include "chat/held_text.h"
#include "chat/tools.h"

namespace longspec::chat {

inline constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>",
                                  kMessageMark = "<|message|>", kConstrainMark = "<|constrain|>",
                                  kEndMark = "<|end|>";
inline constexpr std::string_view kAnalysis = "analysis", kCommentary = "commentary", kFinal = "final",
                                  kFunctions = "functions.";

// Whether it is that of a model with channels, by its source.
bool ShowsChannels(std::string_view chat_template);

// The prompt of an answer whose thoughts, a message of their own, are over before it begins: they are empty.
std::string WithEmptyAnalysis(std::string prompt);

// What an answer may be that says what `said`, an element of a structural tag, is, in the channel `final`.
nlohmann::ordered_json InFinal(nlohmann::ordered_json said);
// What an answer may be that is `message`, its channel included, and may think before.
nlohmann::ordered_json AnalysisThen(nlohmann::ordered_json message);

// How they are read.
struct ChannelForm {
  bool shown = true;    // thoughts; else they are left out
  bool apart = true;    // else they stay in what is said, with their marks
  bool within = false;  // the prompt ends within a message that is said
};

class ChannelReader {
 public:
  // Without `calls` nothing is called.
  ChannelReader(const ChannelForm& form, std::shared_ptr<const CallForm> calls);

  // The next piece. What may yet be a mark is held back.
  AnswerParts Push(std::string_view text);
  // The text has ended: what was held back. A call that was cut short keeps what it has.
  AnswerParts Finish();

  // Once the text has ended: something is called, and its arguments are whole.
  bool has_whole_calls() const { return n_calls_ > 0 && arguments_ended_; }

 private:
  enum class State : uint8_t { kStart, kHeader, kBody, kBetween };
  enum class Kind : uint8_t { kSaid, kThought, kCall };

  bool Step(bool at_end, AnswerParts& out);
  bool ReadStart(bool at_end);
  bool ReadHeader(bool at_end, AnswerParts& out);
  bool ReadBody(bool at_end, AnswerParts& out);
  bool ReadBetween(bool at_end);
  void BeginBody(std::string_view header, AnswerParts& out);
  std::string CalledBy(std::string_view header) const;
  // The next words of the message; `ended`: there are no more.
  void Take(std::string_view words, bool ended, AnswerParts& out);
  void TakeSaid(std::string_view words, AnswerParts& out);
  void TakeThought(std::string_view words, bool ended, AnswerParts& out);
  void TakeArguments(std::string_view words, bool ended, AnswerParts& out);

  const ChannelForm form_;
  const std::shared_ptr<const CallForm> calls_;
  State state_;
  Kind kind_ = Kind::kSaid;
  std::string held_;          // not looked at to its end
  std::string spaces_;        // at the end of a thought so far
  bool at_start_ = true;      // of a message, none of whose words are there yet
  bool is_verbatim_ = false;  // it is said with its marks
  bool has_said_ = false, has_thought_ = false;
  bool arguments_ended_ = false;  // they are whole
  bool arguments_over_ = false;   // what follows is none of them
  JsonScanner scanner_;
  int n_calls_ = 0;
};

}  // namespace longspec::chat
