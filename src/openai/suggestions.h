// SPDX-License-Identifier: Apache-2.0
//
// What was suggested lately. Who types what was suggested asks again with each key, and what is left of the
// suggestion is the likeliest answer. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "longspec/infill.h"

namespace longspec::openai {

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

}  // namespace longspec::openai
