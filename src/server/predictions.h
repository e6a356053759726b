// SPDX-License-Identifier: Apache-2.0
//
// What an answer is likely to be, going by its prompt and by what was answered before, for the drafter
// `prediction`. Pure functions, but for what was suggested lately.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/engine.h"
#include "longspec/infill.h"

namespace longspec::server {

// Of prompts of models that suggest an editor's next edit, Sweep's and those of Zed's Zeta, whose answer is a
// region of the text that is edited, written again with a few changes: that answer, if nothing is changed.
// Nothing: the prompt has none of these forms.
std::optional<std::string> UneditedRegion(std::string_view prompt);

// What may fill the hole of a text, going by the text around it. Somebody is in the middle of a line, often
// of a name: what followed the same letters elsewhere is a guess that no tokens tell, as a name that is half
// written is made of other tokens than the whole one.
struct LikelyMiddle {
  std::string text;   // up to the end of the line
  double chance = 0;  // that the middle begins as it does
  bool ends = false;  // it meets what is behind the hole, so that the middle ends there
  bool operator==(const LikelyMiddle&) const = default;
};

// Likeliest first.
std::vector<LikelyMiddle> LikelyMiddles(const InfillText& text);

// What was suggested lately. Who types what was suggested asks again with each key, and what is left of the
// suggestion is the likeliest answer. Thread-safe.
class Suggestions {
 public:
  struct Rest {
    std::string text;
    int32_t end_token = -1;  // that ended it; -1: none did
    bool operator==(const Rest&) const = default;
  };

  static constexpr size_t kMost = 16;              // the newest ones
  static constexpr size_t kMostLetters = 1 << 12;  // of one, and of what stands before it

  // `middle`, the text of these tokens, was written into the hole. `ended`: by the last of them, which is an
  // end token.
  void Keep(const InfillText& text, std::string middle, std::vector<int32_t> tokens, bool ended);

  // What is left of the newest suggestion that this text is a part of.
  std::optional<Rest> RestOf(const InfillText& text) const;

  // The tokens of each, the newest first.
  std::vector<std::vector<int32_t>> Tokens() const;

 private:
  struct Suggestion {
    std::string before;  // the end of it
    std::string middle;
    std::vector<int32_t> tokens;
    bool ended;
  };

  mutable std::mutex mutex_;
  std::deque<Suggestion> newest_first_;
};

// What a hole may be filled with, as tokens.
PredictionDraftOptions HolePrediction(const InfillText& text, const Suggestions& suggestions,
                                      const Engine& engine);

}  // namespace longspec::server
