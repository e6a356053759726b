// SPDX-License-Identifier: Apache-2.0
#include "openai/likely_middles.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace longspec::openai {
namespace {

constexpr size_t kMostMiddles = 8;
constexpr size_t kMostLetters = 160;  // of a guess
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
  rest = rest.substr(0, std::min(line_end, kMostLetters));
  if (behind.empty()) return {.text = std::string(rest), .ends = line_end == rest.size()};
  const size_t meets = rest.rfind(behind);
  return {.text = std::string(rest.substr(0, meets)), .ends = meets != std::string_view::npos};
}

}  // namespace

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

}  // namespace longspec::openai
