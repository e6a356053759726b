// SPDX-License-Identifier: Apache-2.0
//
// Which part of a text a draft reads that does not read all of it: its end. A draft that knows short texts
// only goes on in long ones this way, with memory and time that do not grow with them. The part grows with
// the text. It begins anew, further on, where it would outgrow what the draft was trained for, and where
// reading on would take longer than beginning anew.
//
// Example: a draft for 1,024 positions that begins with 64. Of a prompt of 5,000 tokens it reads the last
// 64, then what is accepted; after 960 tokens it begins anew with the last 64.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace longspec {

class RecentText {
 public:
  // `most` tokens are read at once; 0: any number. It begins with the last `first`; 0: with all of a text
  // that has no more than `most`, and with a quarter of `most` in a longer one.
  RecentText(int most, int first) : most_(ToSize(most)), first_(ToSize(first)) {
    // Else it would begin anew after every few tokens.
    if (most_ > 0) first_ = std::min(first_, most_ / 2 + most_ % 2);
  }

  // Chooses the part of `text` for a draft that holds `held`, tokens from the part's beginning on. Returns
  // how many of these stay: all others are to be forgotten. The draft may not hold the last token.
  size_t Follow(std::span<const int32_t> held, std::span<const int32_t> text) {
    const size_t readable = text.empty() ? 0 : text.size() - 1;
    const size_t begin = std::min(begin_, readable);
    const std::span<const int32_t> part = text.subspan(begin, readable - begin);
    const auto kept = static_cast<size_t>(std::ranges::mismatch(held, part).in1 - held.begin());
    const size_t anew = std::min(First(text.size()), text.size());
    const bool outgrown = most_ > 0 && part.size() + 1 > most_;
    if (kept > 0 && !outgrown && part.size() - kept <= anew) return kept;
    const size_t before = begin_;
    begin_ = text.size() - anew;
    return begin_ == before ? kept : 0;
  }

  // The part of the text that was followed last.
  std::span<const int32_t> Of(std::span<const int32_t> text) const {
    return text.subspan(std::min(begin_, text.size()));
  }
  size_t begin() const { return begin_; }

 private:
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();

  static size_t ToSize(int n) { return n > 0 ? static_cast<size_t>(n) : 0; }
  size_t First(size_t n_text) const {
    if (first_ > 0) return first_;
    return most_ == 0 || n_text <= most_ ? kAll : (most_ + 3) / 4;
  }

  size_t most_, first_;
  size_t begin_ = 0;
};

}  // namespace longspec
