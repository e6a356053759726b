// SPDX-License-Identifier: Apache-2.0
//
// What a model thinks before it speaks, which it writes into its answer between two tags: how it is told from
// what is said, as the text comes. Not thread-safe; no model, no vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "longspec/generation.h"

namespace longspec::openai {

class Fields;
struct ApiRequest;

struct ThinkingTags {
  std::string_view begin, end;
};
// By the chat template's source. Nothing: the model does not think.
std::optional<ThinkingTags> ThinkingTagsOf(std::string_view chat_template);

// Whether variables of a chat template, the text of an object or nothing, say that nothing is to be thought.
bool ForbidThinking(std::string_view variables);
// A prompt that ends within a thought, which its template has begun, with the thought's end behind it;
// another one as it is.
std::string WithThoughtEnded(std::string prompt);
// Whether nothing is thought behind this prompt.
bool IsThoughtOver(std::string_view prompt);

// Where the thoughts of an answer go; a request may say it.
enum class ThoughtsPlace : uint8_t {
  kAuto,       // apart from what is said, if the model is known to think
  kApart,      // apart, if it thinks
  kInContent,  // they stay in the text
  kNowhere     // they are left out, if the model is known to think
};

// What reasoning_format says: auto, none or deepseek. Nothing: there is no such format.
std::optional<ThoughtsPlace> ThoughtsPlaceOf(std::string_view format);
// reasoning_format of llama.cpp, include_reasoning of vLLM, separate_reasoning of SGLang; `otherwise`, if a
// request says none of these.
ThoughtsPlace ParseThoughtsPlace(Fields& fields, ThoughtsPlace otherwise);

// How thoughts are read.
struct ThinkingForm {
  ThinkingTags tags;
  bool begun = false;  // the prompt has the first tag
  bool shown = true;   // else they are left out
};

// Of an answer to a chat, whose request still has its messages, behind a prompt of which `prompt_end` is the
// end, at least kPromptEndTokens of it. Nothing: all of the answer is content. What form the answer is to
// have is then asked of what is said, and the thought before it is free.
inline constexpr size_t kPromptEndTokens = 32;
std::optional<ThinkingForm> ThinkingFormOf(const std::optional<ThinkingTags>& model,
                                           std::string_view prompt_end, ApiRequest* request);

// Splits a text into thoughts, with which it may begin, and what is said. White space around thoughts belongs
// to neither; all else is in one of them.
class ThinkingReader {
 public:
  explicit ThinkingReader(const std::optional<ThinkingForm>& form);

  struct Parts {
    std::string thought, text;  // in this order
  };
  // The next piece. What may yet be a tag, or white space before one, is held back.
  Parts Push(std::string_view text);
  // The text has ended: what was held back.
  Parts Finish();

 private:
  enum class State : uint8_t { kBefore, kThought, kBetween, kText };

  bool Step(bool at_end, Parts& out);
  bool ReadBegin(bool at_end);
  bool ReadThought(bool at_end, Parts& out);
  void Think(std::string_view words, Parts& out);

  const ThinkingTags tags_;
  bool begun_;
  State state_;
  std::string held_;
  bool at_start_ = false;     // of a thought, none of whose words are there yet
  bool has_thought_ = false;  // words of one were there
};

}  // namespace longspec::openai
