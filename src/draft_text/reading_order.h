// SPDX-License-Identifier: Apache-2.0
//
// A prompt with a hole ends with what is behind the hole, and the answer goes on with what is before it:
//
//   [PREFIX] for (int row = 0; [SUFFIX] ++row) { [MIDDLE] row < n;
//
// Who counts what follows what reads such a text in another order, so that the answer follows what it goes on
// with, and what is behind the hole is one more text before it:
//
//   [SUFFIX] ++row) { [MIDDLE] [PREFIX] for (int row = 0; row < n;
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"

namespace longspec {

// Its tokens in another order, and just as many. Not thread-safe.
class ReadingOrder {
 public:
  explicit ReadingOrder(const HoleTokens& marks = {}) : marks_(marks) {}

  // A view of `text`, or of a copy that is valid until the next call.
  std::span<const int32_t> Of(std::span<const int32_t> text) {
    if (marks_.middle < 0 || marks_.prefix < 0 || marks_.suffix < 0) return text;
    const auto middle = LastOf(text, marks_.middle);
    if (middle == text.size()) return text;
    const auto before_middle = text.first(middle);
    const auto prefix = LastOf(before_middle, marks_.prefix), suffix = LastOf(before_middle, marks_.suffix);
    if (prefix == middle || suffix == middle) return text;
    ordered_.assign(text.begin(), text.end());
    const auto at = [this](size_t i) { return ordered_.begin() + static_cast<std::ptrdiff_t>(i); };
    if (prefix < suffix) {
      std::rotate(at(prefix), at(suffix), at(middle + 1));
    } else {  // the suffix is first: only the mark of the middle stands between
      std::rotate(at(suffix), at(middle), at(middle + 1));
    }
    return ordered_;
  }

 private:
  // Where a token comes last; the text's size: nowhere.
  static size_t LastOf(std::span<const int32_t> text, int32_t token) {
    const auto found = std::find(text.rbegin(), text.rend(), token);
    return found == text.rend() ? text.size() : static_cast<size_t>(text.rend() - found) - 1;
  }

  HoleTokens marks_;
  std::vector<int32_t> ordered_;
};

}  // namespace longspec
