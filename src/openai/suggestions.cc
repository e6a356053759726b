// SPDX-License-Identifier: Apache-2.0
#include "openai/suggestions.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace longspec::openai {
namespace {

// As much of what stands before a hole as a suggestion and what is kept of the text before it can have.
std::string EndBefore(const InfillText& text, size_t most) {
  std::string before = text.prefix.substr(text.prefix.size() - std::min(text.prefix.size(), most));
  before += text.prompt;
  return before.substr(before.size() - std::min(before.size(), most));
}

}  // namespace

void Suggestions::Keep(const InfillText& text, std::string middle, std::vector<int32_t> tokens, bool ended) {
  if (tokens.empty()) return;
  ended = ended && tokens.size() <= kMostLetters;
  tokens.resize(std::min(tokens.size(), kMostLetters));
  middle.resize(std::min(middle.size(), kMostLetters));
  Suggestion kept = {.before = EndBefore(text, kMostLetters),
                     .middle = std::move(middle),
                     .tokens = std::move(tokens),
                     .ended = ended};
  const std::lock_guard lock(mutex_);
  std::erase_if(newest_first_, [&](const Suggestion& other) { return other.before == kept.before; });
  newest_first_.push_front(std::move(kept));
  if (newest_first_.size() > kMost) newest_first_.pop_back();
}

std::optional<Suggestions::Rest> Suggestions::RestOf(const InfillText& text) const {
  const std::string before = EndBefore(text, 2 * kMostLetters);
  const std::lock_guard lock(mutex_);
  for (const Suggestion& suggestion : newest_first_) {
    const std::string_view middle = suggestion.middle;
    // So many letters of it were typed.
    for (size_t typed = std::min(middle.size(), before.size()) + 1; typed-- > 0;) {
      if (!before.ends_with(middle.substr(0, typed))) continue;
      // The window before the hole may have moved: the shorter text is the other's end.
      const std::string_view then = suggestion.before;
      const std::string_view now = std::string_view(before).substr(0, before.size() - typed);
      if (now.size() < then.size() ? then.ends_with(now) && !now.empty() : now.ends_with(then))
        return Rest{.text = std::string(middle.substr(typed)),
                    .end_token = suggestion.ended ? suggestion.tokens.back() : -1};
    }
  }
  return std::nullopt;
}

std::vector<std::vector<int32_t>> Suggestions::Tokens() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<int32_t>> tokens;
  for (const Suggestion& suggestion : newest_first_) tokens.push_back(suggestion.tokens);
  return tokens;
}

}  // namespace longspec::openai
