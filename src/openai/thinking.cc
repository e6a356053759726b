// SPDX-License-Identifier: Apache-2.0
#include "openai/thinking.h"

#include <algorithm>
#include <utility>

#include "openai/answer_form.h"
#include "openai/fields.h"
#include "openai/held_text.h"
#include "openai/json.h"
#include "openai/requests.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;

constexpr ThinkingTags kTags = {"<think>", "</think>"};

std::string_view TrimmedEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kJsonSpace) + 1);
}

enum class ThoughtState : uint8_t { kMayCome, kBegun, kOver };

// Where a prompt leaves its answer.
ThoughtState ThoughtAt(const ThinkingTags& tags, std::string_view prompt_end,
                       const GenerationRequest& request) {
  const std::string_view said = request.prompt_end == PromptEnd::kContinued && !request.messages.empty()
                                    ? TrimmedEnd(request.messages.back().content)
                                    : std::string_view();
  const std::string_view text = said.empty() ? TrimmedEnd(prompt_end) : said;
  if (text.ends_with(tags.begin)) return ThoughtState::kBegun;
  if (text.ends_with(tags.end)) return ThoughtState::kOver;
  if (said.empty()) return ThoughtState::kMayCome;
  const size_t begin = said.rfind(tags.begin);
  const size_t end = said.rfind(tags.end);
  const bool open = begin != std::string_view::npos && (end == std::string_view::npos || end < begin);
  return open ? ThoughtState::kBegun : ThoughtState::kOver;
}

// --- The form of what is said, behind a thought. ---

// Where a model may call or not, its text is free, and so are its thoughts.
bool HoldsFirstWords(const ApiRequest& request) {
  return request.grammar_field != "tools" || request.tools.choice == ToolChoice::kRequired;
}

// Lets a thought stand before what has the form. False: the form holds it, too.
bool LetThinkFirst(const ThinkingForm& form, ApiRequest* request) {
  GrammarText& grammar = request->generation.grammar;
  if (grammar.kind == Kind::kNone || !HoldsFirstWords(*request)) return true;
  Json said = TagElementOf(grammar);
  if (said.is_null()) return false;
  const Json tag = {{"type", "tag"},
                    {"begin", form.begun ? "" : std::string(form.tags.begin)},
                    {"content", {{"type", "any_text"}}},
                    {"end", std::string(form.tags.end)}};
  const Json space = {{"type", "regex"}, {"pattern", "[ \\n\\r\\t]{0,8}"}};
  Json thought = {{"type", "sequence"}, {"elements", {tag, space}}};
  if (!form.begun) thought = {{"type", "optional"}, {"content", std::move(thought)}};
  const Json both = {{"type", "sequence"}, {"elements", {std::move(thought), std::move(said)}}};
  grammar = {Kind::kStructuralTag, DumpJson({{"type", "structural_tag"}, {"format", both}})};
  return true;
}

}  // namespace

std::optional<ThinkingTags> ThinkingTagsOf(std::string_view chat_template) {
  // Some templates only take thoughts out of earlier answers.
  if (chat_template.find(kTags.end) == std::string_view::npos) return std::nullopt;
  return kTags;
}

std::optional<ThoughtsPlace> ThoughtsPlaceOf(std::string_view format) {
  if (format == "auto") return ThoughtsPlace::kAuto;
  if (format == "none") return ThoughtsPlace::kInContent;
  if (format == "deepseek") return ThoughtsPlace::kApart;
  return std::nullopt;
}

bool ForbidThinking(std::string_view variables) {
  const auto parsed = ParseJson(variables);
  const Json* all = std::get_if<Json>(&parsed);
  return all != nullptr && all->is_object() && all->contains("enable_thinking") &&
         (*all)["enable_thinking"] == false;
}

std::string WithThoughtEnded(std::string prompt) {
  if (TrimmedEnd(prompt).ends_with(kTags.begin)) prompt += std::string(kTags.end) + "\n\n";
  return prompt;
}

bool IsThoughtOver(std::string_view prompt) { return TrimmedEnd(prompt).ends_with(kTags.end); }

ThoughtsPlace ParseThoughtsPlace(Fields& fields, ThoughtsPlace otherwise) {
  ThoughtsPlace place = otherwise;
  std::string format;
  const bool has_format = fields.Text("reasoning_format", &format);
  if (has_format && !ThoughtsPlaceOf(format))
    fields.Fail("reasoning_format", "must be auto, none or deepseek", "invalid_value");
  if (has_format) place = ThoughtsPlaceOf(format).value_or(otherwise);
  bool apart = true, included = true;
  const bool says_apart = fields.Bool("separate_reasoning", &apart);
  fields.Bool("include_reasoning", &included);
  if (const Json* reasoning = fields.Find("reasoning"); reasoning != nullptr && reasoning->is_object())
    included = included && reasoning->value("exclude", Json()) != true;
  if (!apart) place = ThoughtsPlace::kInContent;
  if (says_apart && apart && !has_format && place == ThoughtsPlace::kInContent) place = ThoughtsPlace::kAuto;
  return included ? place : ThoughtsPlace::kNowhere;
}

std::optional<ThinkingForm> ThinkingFormOf(const std::optional<ThinkingTags>& model,
                                           std::string_view prompt_end, ApiRequest* request) {
  const ThoughtsPlace place = request->wishes.thoughts;
  if (request->endpoint != Endpoint::kChatCompletions || place == ThoughtsPlace::kInContent)
    return std::nullopt;
  if (!model && place != ThoughtsPlace::kApart) return std::nullopt;
  ThinkingForm form = {.tags = model.value_or(kTags), .shown = place != ThoughtsPlace::kNowhere};
  const ThoughtState thought = ThoughtAt(form.tags, prompt_end, request->generation);
  if (thought == ThoughtState::kOver) return std::nullopt;
  form.begun = thought == ThoughtState::kBegun;
  if (!LetThinkFirst(form, request)) form.begun = false;
  return form;
}

ThinkingReader::ThinkingReader(const std::optional<ThinkingForm>& form)
    : tags_(form ? form->tags : ThinkingTags()),
      begun_(form && form->begun),
      state_(form ? State::kBefore : State::kText) {}

ThinkingReader::Parts ThinkingReader::Push(std::string_view text) {
  Parts out;
  held_ += text;
  while (Step(false, out)) {
  }
  return out;
}

ThinkingReader::Parts ThinkingReader::Finish() {
  Parts out;
  while (Step(true, out)) {
  }
  return out;
}

// One state's work; false when it needs more text.
bool ThinkingReader::Step(bool at_end, Parts& out) {
  switch (state_) {
    case State::kBefore:
    case State::kBetween:
      return ReadBegin(at_end);
    case State::kThought:
      return ReadThought(at_end, out);
    case State::kText:
      out.text += std::exchange(held_, std::string());
      return false;
  }
  return false;
}

// The first tag, or the first words of what has none. White space before words that are said is theirs, but
// not behind a thought.
bool ThinkingReader::ReadBegin(bool at_end) {
  const size_t n_space = std::min(held_.find_first_not_of(kJsonSpace), held_.size());
  const std::string_view words = std::string_view(held_).substr(n_space);
  const bool is_tag = words.starts_with(tags_.begin);
  if (!is_tag && !at_end && tags_.begin.starts_with(words)) return false;
  const bool thinks = is_tag || begun_;
  begun_ = false;
  if (thinks || state_ == State::kBetween) held_.erase(0, n_space + (is_tag ? tags_.begin.size() : 0));
  state_ = thinks ? State::kThought : State::kText;
  at_start_ = thinks;
  return true;
}

bool ThinkingReader::ReadThought(bool at_end, Parts& out) {
  if (at_start_) held_.erase(0, std::min(held_.find_first_not_of(kJsonSpace), held_.size()));
  const size_t end = held_.find(tags_.end);
  const bool ends = end != std::string::npos;
  const size_t n = ends ? end : held_.size() - (at_end ? 0 : HeldBack(held_, tags_.end));
  const std::string_view words = TrimmedEnd(std::string_view(held_).substr(0, n));
  Think(words, out);
  if (ends) state_ = State::kBetween;
  held_.erase(0, ends ? end + tags_.end.size() : at_end ? held_.size() : words.size());
  return ends;
}

// Thoughts between several pairs of tags are lines.
void ThinkingReader::Think(std::string_view words, Parts& out) {
  if (words.empty()) return;
  if (std::exchange(at_start_, false) && std::exchange(has_thought_, true)) out.thought += '\n';
  out.thought += words;
}

}  // namespace longspec::openai
