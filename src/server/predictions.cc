// SPDX-License-Identifier: Apache-2.0
#include "server/predictions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

namespace longspec::server {
namespace {

// A region stands behind the last `begin`, and the line that it ends, up to `end`.
struct RegionForm {
  std::string_view begin, end;
  std::string_view last = {};  // what the prompt ends with, but for one line behind it; empty: anything
  bool has_path = false;       // `begin` and `last` are followed by a path
  bool repeats_marks = false;  // the answer has `begin` and `end`, too
};

constexpr RegionForm kRegionForms[] = {
    {.begin = "<|file_sep|>current/",
     .end = "<|file_sep|>",
     .last = "<|file_sep|>updated/",
     .has_path = true},
    {.begin = "<|editable_region_start|>", .end = "<|editable_region_end|>", .repeats_marks = true},
    {.begin = "<|fim_middle|>current", .end = "<|fim_", .last = "<|fim_middle|>updated"},
    {.begin = "<<<<<<< CURRENT", .end = "=======\n", .last = "<[fim-middle]>"},
};

// Where the editor's cursor is, which no answer says.
constexpr std::array<std::string_view, 3> kCursors = {"<|user_cursor_is_here|>", "<|user_cursor|>",
                                                      "<|cursor|>"};

std::string WithoutCursor(std::string_view region) {
  std::string text(region);
  for (const std::string_view cursor : kCursors) {
    if (const size_t at = text.find(cursor); at != std::string::npos) text.erase(at, cursor.size());
  }
  return text;
}

bool EndsAs(std::string_view prompt, const RegionForm& form) {
  if (form.last.empty()) return true;
  const size_t at = prompt.rfind(form.last);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = prompt.substr(at + form.last.size());
  const size_t line_end = rest.find('\n');
  return line_end == std::string_view::npos ? form.has_path || rest.empty()
                                            : line_end + 1 == rest.size() && (form.has_path || line_end == 0);
}

std::optional<std::string> RegionIn(std::string_view prompt, const RegionForm& form) {
  if (!EndsAs(prompt, form)) return std::nullopt;
  const size_t mark = prompt.rfind(form.begin);
  if (mark == std::string_view::npos) return std::nullopt;
  const size_t line_end = prompt.find('\n', mark + form.begin.size());
  if (line_end == std::string_view::npos) return std::nullopt;
  if (!form.has_path && line_end != mark + form.begin.size()) return std::nullopt;
  const size_t end = prompt.find(form.end, line_end);
  if (end == std::string_view::npos) return std::nullopt;
  if (form.repeats_marks) return WithoutCursor(prompt.substr(mark, end + form.end.size() - mark));
  return WithoutCursor(prompt.substr(line_end + 1, end - line_end - 1));
}

constexpr size_t kMostMiddles = 8;
constexpr size_t kMostGuessed = 160;  // letters of a guess
constexpr size_t kMostCompared = 64;  // letters before the hole
constexpr size_t kMostPlaces = 1024;  // looked at, the nearest ones
constexpr double kMostSure = 0.7;     // that what followed many equal letters follows again
constexpr double kDoubtKept = 0.85;   // by each letter that is equal

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The end of a text that stands before a hole, and what is looked for in other texts.
class Typed {
 public:
  explicit Typed(std::string_view text) : line_(text.substr(text.rfind('\n') + 1)) {
    size_t begin = line_.size();
    while (begin > 0 && IsOfName(line_[begin - 1])) --begin;
    least_ = line_.size() - begin;
    if (least_ > 0) return;
    // Behind a sign: the sign, and what is before it.
    while (begin > 0 && line_[begin - 1] == ' ') --begin;
    least_ = begin == 0 ? 0 : line_.size() - begin + 1;
  }

  // Of a line of nothing but spaces nothing is known.
  bool empty() const { return least_ == 0; }

  // How many letters before `end` are those before the hole; 0: too few, or they begin inside a name.
  size_t Matched(std::string_view text, size_t end) const {
    size_t n = 0;
    const size_t most = std::min({line_.size(), end, kMostCompared});
    while (n < most && line_[line_.size() - 1 - n] == text[end - 1 - n]) ++n;
    // A name counts as a whole, or from where it begins on.
    while (n >= least_ && n > 0 && !BeginsName(text, end - n)) --n;
    return n >= least_ ? n : 0;
  }

 private:
  static bool BeginsName(std::string_view text, size_t at) {
    return at == 0 || !IsOfName(text[at]) || !IsOfName(text[at - 1]);
  }

  std::string_view line_;
  size_t least_ = 0;  // letters that have to be equal
};

struct Place {
  size_t matched;
  size_t order;  // nearest to the hole first
  std::string_view rest;
};

// What follows on the line there, up to what stands behind the hole on its line.
LikelyMiddle MiddleAt(std::string_view rest, std::string_view behind) {
  const size_t line_end = rest.find('\n');
  rest = rest.substr(0, std::min(line_end, kMostGuessed));
  if (behind.empty()) return {.text = std::string(rest), .ends = line_end == rest.size()};
  const size_t meets = rest.rfind(behind);
  return {.text = std::string(rest.substr(0, meets)), .ends = meets != std::string_view::npos};
}

// As much of what stands before a hole as a suggestion and what is kept of the text before it can have.
std::string EndBefore(const InfillText& text, size_t most) {
  std::string before = text.prefix.substr(text.prefix.size() - std::min(text.prefix.size(), most));
  before += text.prompt;
  return before.substr(before.size() - std::min(before.size(), most));
}

constexpr double kUnusedIsRight = 0.85;  // what is left of a suggestion that is being typed
constexpr double kEndsAsBefore =
    0.8;  // a suggestion, as the one before it: with an end token, or with a line

// How what was suggested lately ended.
struct Ends {
  int32_t token = -1;  // the newest end token; -1: none
  double chance = 0;   // of it, and not of a line's end
};

Ends EndsOf(const std::vector<std::vector<int32_t>>& suggestions, const Engine& engine) {
  for (const std::vector<int32_t>& tokens : suggestions) {
    if (!engine.EndsAnswer(tokens.back())) continue;
    const bool is_newest = &tokens == &suggestions.front();
    return {.token = tokens.back(), .chance = is_newest ? kEndsAsBefore : 1 - kEndsAsBefore};
  }
  return {};
}

}  // namespace

std::optional<std::string> UneditedRegion(std::string_view prompt) {
  for (const RegionForm& form : kRegionForms) {
    if (auto region = RegionIn(prompt, form); region && !region->empty()) return region;
  }
  return std::nullopt;
}

std::vector<LikelyMiddle> LikelyMiddles(const InfillText& text) {
  const std::string before = text.prefix + text.prompt;
  const Typed typed(before);
  if (typed.empty()) return {};
  const std::string_view behind = std::string_view(text.suffix).substr(0, text.suffix.find('\n'));
  std::vector<Place> places;
  const auto look = [&](std::string_view in, size_t end) {
    if (places.size() >= kMostPlaces) return;
    const size_t matched = typed.Matched(in, end);
    if (matched > 0 && end < in.size())
      places.push_back({.matched = matched, .order = places.size(), .rest = in.substr(end)});
  };
  for (size_t end = before.size(); end-- > 1;) look(before, end);
  for (size_t end = 1; end < text.suffix.size(); ++end) look(text.suffix, end);
  for (auto chunk = text.chunks.rbegin(); chunk != text.chunks.rend(); ++chunk) {
    for (size_t end = 1; end < chunk->text.size(); ++end) look(chunk->text, end);
  }
  std::ranges::sort(places, [](const Place& a, const Place& b) {
    return a.matched != b.matched ? a.matched > b.matched : a.order < b.order;
  });
  std::vector<LikelyMiddle> middles;
  double left = 1;
  for (const Place& place : places) {
    if (middles.size() == kMostMiddles) break;
    const double sure = kMostSure * (1 - std::pow(kDoubtKept, static_cast<double>(place.matched)));
    LikelyMiddle middle = MiddleAt(place.rest, behind);
    middle.chance = left * sure;
    const auto known = std::ranges::find(middles, middle.text, &LikelyMiddle::text);
    if (known == middles.end()) {
      middles.push_back(std::move(middle));
    } else {
      known->chance += middle.chance;
    }
    left *= 1 - sure;
  }
  std::ranges::stable_sort(middles, std::greater(), &LikelyMiddle::chance);
  return middles;
}

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

PredictionDraftOptions HolePrediction(const InfillText& text, const Suggestions& suggestions,
                                      const Engine& engine) {
  PredictionDraftOptions prediction;
  const auto add = [&](std::string_view begins, int32_t end, double chance) {
    std::vector<int32_t> tokens = engine.Tokenize(begins, false, false);
    if (end >= 0) tokens.push_back(end);
    prediction.beginnings.push_back({.tokens = std::move(tokens), .chance = static_cast<float>(chance)});
  };
  std::vector<std::vector<int32_t>> lately = suggestions.Tokens();
  const Ends ends = EndsOf(lately, engine);
  double left = 1;
  if (const auto rest = suggestions.RestOf(text)) {
    add(rest->text, rest->end_token, kUnusedIsRight);
    left -= kUnusedIsRight;
  }
  for (const LikelyMiddle& middle : LikelyMiddles(text)) {
    if (!middle.ends) {
      add(middle.text, -1, left * middle.chance);
      continue;
    }
    if (ends.token >= 0) add(middle.text, ends.token, left * middle.chance * ends.chance);
    add(middle.text + "\n", -1, left * middle.chance * (1 - ends.chance));
  }
  // How the last ones went on and ended.
  for (std::vector<int32_t>& tokens : lately)
    prediction.beginnings.push_back({.tokens = std::move(tokens), .chance = 0});
  return prediction;
}

}  // namespace longspec::server
