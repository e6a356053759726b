// SPDX-License-Identifier: Apache-2.0
#include "draft_text/copies.h"

#include <algorithm>
#include <cmath>

#include "base/largest.h"
#include "base/size.h"

namespace longspec {
namespace {

constexpr int kSure = 10;          // equal tokens after which there is no doubt of the place
constexpr int kMostMatched = 16;   // tokens that are compared
constexpr size_t kMostPlaces = 6;  // believed at a time
constexpr int kRunOfWhole = 10;    // what a text is believed from its first token on
constexpr int kMostReplaced = 2;   // tokens after which they are not taken for others in their place
constexpr double kByMatched = 3;   // times likelier, for each equal token more
constexpr double kReplaced =
    0.6;                          // weight of a place behind tokens that were replaced; of one equal token: 3
constexpr double kElsewhere = 2;  // weight of all places that are not thought of
constexpr double kFar = 12;       // tokens from where the text was left on: half as likely
constexpr double kBackwards = 3;  // times as far
// Of texts that the answer may begin with: what it has been so far counts more, and other parts of them less.
constexpr double kIsBeginning = 6;
constexpr int kRunOfBeginning = 2;
constexpr double kPart = 0.4;

}  // namespace

double ChanceOfNext(int run) { return 1 - 1 / (2.5 + 1.5 * run); }

void Copies::AddWhole(std::vector<int32_t> tokens) {
  if (!tokens.empty()) texts_.push_back({.tokens = std::move(tokens), .whole = true, .chance = 1});
  Restart();
}

void Copies::AddBeginning(std::vector<int32_t> tokens, double chance) {
  if (!tokens.empty()) texts_.push_back({.tokens = std::move(tokens), .whole = false, .chance = chance});
  Restart();
}

void Copies::Restart() {
  answer_.clear();
  places_.clear();
  since_left_ = 0;
  double sum = 0;
  for (size_t i = 0; i < texts_.size(); ++i) {
    texts_[i].left_at = 0;
    sum += texts_[i].chance;
    places_.push_back(
        {.text = i, .run = texts_[i].whole ? kRunOfWhole : kRunOfBeginning, .weight = texts_[i].chance});
  }
  for (Copy& place : places_) place.weight /= std::max(1.0, sum);
  std::ranges::stable_sort(places_, std::greater(), &Copy::weight);
}

void Copies::Follow(std::span<const int32_t> answer) {
  if (answer.size() < answer_.size() || !std::equal(answer_.begin(), answer_.end(), answer.begin()))
    Restart();
  const size_t known = answer_.size();
  // By the token, so that it does not matter in how many at a time the answer came.
  for (const int32_t token : answer.subspan(known)) {
    Take(token);
    if (places_.empty() || places_.front().run < kSure) FindAgain();
  }
}

// Of the places those that foretold it go on.
void Copies::Take(int32_t token) {
  answer_.push_back(token);
  ++since_left_;
  double sum = 0;
  std::erase_if(places_, [&](Copy& place) {
    Text& text = texts_[place.text];
    if (TokenAt(place.text, place.at) != token) {
      // A place that was right until now is where the text is left.
      if (place.weight > 0.5 && place.run > 2) text.left_at = place.at, since_left_ = 1;
      return true;
    }
    place.weight *= ChanceOfNext(place.run);
    ++place.at;
    ++place.run;
    sum += place.weight;
    return false;
  });
  for (Copy& place : places_) place.weight /= sum;
}

// Tokens before a place of a text that are the answer's last.
int Copies::Matched(const Text& text, size_t at) const {
  const size_t most = std::min({at, answer_.size(), size_t{kMostMatched}});
  size_t n = 0;
  while (n < most && text.tokens[at - 1 - n] == answer_[answer_.size() - 1 - n]) ++n;
  return static_cast<int>(n);
}

// How far a place is from where its text was left: so many times less likely.
double Copies::Far(const Text& text, size_t at) {
  const double ahead = static_cast<double>(at) - static_cast<double>(text.left_at);
  return 1 + (ahead >= 0 ? ahead : -kBackwards * ahead) / kFar;
}

void Copies::FindAgain() {
  places_.clear();
  double sum = kElsewhere;
  const auto add = [&](size_t text, size_t at, int run, double likely) {
    places_.push_back({.text = text, .at = at, .run = run, .weight = likely});
    sum += likely;
  };
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Text& text = texts_[i];
    for (size_t at = 1; at <= text.tokens.size(); ++at) {
      if (text.tokens[at - 1] != answer_.back()) continue;
      const int matched = Matched(text, at);
      const double likely = std::pow(kByMatched, matched);
      if (text.whole) {
        add(i, at, matched, likely / Far(text, at));
      } else if (at == answer_.size() && Z(matched) == std::min(at, size_t{kMostMatched})) {
        add(i, at, matched + kRunOfBeginning, likely * kIsBeginning * text.chance);
      } else {
        add(i, at, matched, likely * kPart);
      }
    }
    if (text.whole && since_left_ <= kMostReplaced) {
      const size_t behind = text.left_at + Z(since_left_);
      for (const size_t at : {behind, text.left_at}) add(i, at, 0, kReplaced / Far(text, at));
    }
  }
  for (Copy& place : places_) place.weight /= sum;
  KeepLargest(places_, kMostPlaces, &Copy::weight);
}

size_t Copies::bytes() const {
  size_t bytes = (answer_.capacity()) * sizeof(int32_t);
  for (const Text& text : texts_) bytes += text.tokens.capacity() * sizeof(int32_t);
  return bytes;
}

}  // namespace longspec
