// SPDX-License-Identifier: Apache-2.0
//
// What a model thinks before it speaks, which it writes into its answer between two tags: how prompts begin
// and end it, and how it is told from what is said, as the text comes. Not thread-safe; no model, no
// vocabulary.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "longspec/generation.h"

namespace longspec::chat {

struct ThinkingTags {
  std::string_view begin, end;
};
inline constexpr ThinkingTags kThinkTags = {"<think>", "</think>"};         // of most models
inline constexpr ThinkingTags kMistralThinkTags = {"[THINK]", "[/THINK]"};  // Magistral, Ministral 3
// By the chat template's source. Nothing: the model does not think, or not between tags.
std::optional<ThinkingTags> ThinkingTagsOf(std::string_view chat_template);

// Whether variables of a chat template, the text of an object or nothing, say that nothing is to be thought.
bool ForbidThinking(std::string_view variables);
// A prompt whose answer may think between these tags, with the end of a thought behind it: of one that its
// template has begun, or else of an empty one.
std::string WithThoughtEnded(const ThinkingTags& tags, std::string prompt);

// Where a prompt leaves its answer.
enum class ThoughtState : uint8_t { kMayCome, kBegun, kOver };
// `said`: what the last message says, if it is gone on with.
ThoughtState ThoughtAt(const ThinkingTags& tags, std::string_view prompt_end, std::string_view said);

// How thoughts are read.
struct ThinkingForm {
  ThinkingTags tags;
  bool begun = false;  // the prompt has the first tag
  bool shown = true;   // else they are left out
};

// What an answer may be that says what `said`, an element of a structural tag, is, and may think before.
nlohmann::ordered_json ThoughtThen(const ThinkingForm& form, nlohmann::ordered_json said);

// For templates that know thoughts as parts of a message's content, and not by a name of their own.
void PutThoughtsIntoContents(GenerationRequest& generation);

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

}  // namespace longspec::chat
