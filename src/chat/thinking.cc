// SPDX-License-Identifier: Apache-2.0
#include "chat/thinking.h"

#include <algorithm>
#include <utility>

#include "chat/held_text.h"
#include "json/bounded_json.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr ThinkingTags kAllTags[] = {kThinkTags, kMistralThinkTags};

std::string_view TrimmedEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kJsonSpace) + 1);
}

}  // namespace

std::optional<ThinkingTags> ThinkingTagsOf(std::string_view chat_template) {
  // Some templates only take thoughts out of earlier answers.
  for (const ThinkingTags& tags : kAllTags) {
    if (chat_template.find(tags.end) != std::string_view::npos) return tags;
  }
  return std::nullopt;
}

bool ForbidThinking(std::string_view variables) {
  const auto read = ReadBoundedJson(variables);
  const Json* all = std::get_if<Json>(&read);
  return all != nullptr && all->is_object() && all->contains("enable_thinking") &&
         (*all)["enable_thinking"] == false;
}

std::string WithThoughtEnded(const ThinkingTags& tags, std::string prompt) {
  const std::string_view text = TrimmedEnd(prompt);
  if (text.ends_with(tags.end)) return prompt;
  const bool is_begun = text.ends_with(tags.begin);
  if (!is_begun) prompt += std::string(tags.begin) + "\n\n";
  return prompt + std::string(tags.end) + "\n\n";
}

ThoughtState ThoughtAt(const ThinkingTags& tags, std::string_view prompt_end, std::string_view said) {
  said = TrimmedEnd(said);
  const std::string_view text = said.empty() ? TrimmedEnd(prompt_end) : said;
  if (text.ends_with(tags.begin)) return ThoughtState::kBegun;
  if (text.ends_with(tags.end)) return ThoughtState::kOver;
  if (said.empty()) return ThoughtState::kMayCome;
  const size_t begin = said.rfind(tags.begin);
  const size_t end = said.rfind(tags.end);
  const bool open = begin != std::string_view::npos && (end == std::string_view::npos || end < begin);
  return open ? ThoughtState::kBegun : ThoughtState::kOver;
}

Json ThoughtThen(const ThinkingForm& form, Json said) {
  const Json tag = {{"type", "tag"},
                    {"begin", form.begun ? "" : std::string(form.tags.begin)},
                    {"content", {{"type", "any_text"}}},
                    {"end", std::string(form.tags.end)}};
  const Json space = {{"type", "regex"}, {"pattern", "[ \\n\\r\\t]{0,8}"}};
  Json thought = {{"type", "sequence"}, {"elements", {tag, space}}};
  if (!form.begun) thought = {{"type", "optional"}, {"content", std::move(thought)}};
  return {{"type", "sequence"}, {"elements", {std::move(thought), std::move(said)}}};
}

void PutThoughtsIntoContents(GenerationRequest& generation) {
  for (Message& message : generation.messages) {
    // What is gone on with is a text.
    const bool goes_on =
        generation.prompt_end == PromptEnd::kContinued && &message == &generation.messages.back();
    if (message.more.empty() || goes_on) continue;
    Json more = LoadJson(message.more);
    const auto thought = more.find("reasoning_content");
    if (thought == more.end() || !thought->is_string() || thought->get_ref<const std::string&>().empty())
      continue;
    Json content = Json::array({{{"type", "thinking"}, {"thinking", *thought}}});
    if (!message.content.empty()) content.push_back({{"type", "text"}, {"text", message.content}});
    more["content"] = std::move(content);
    message.more = WriteJson(more);
  }
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

}  // namespace longspec::chat
