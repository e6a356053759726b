// SPDX-License-Identifier: Apache-2.0
//
// What a draft model that was trained on shorter texts does in a long one: it says so where it has to stop,
// or reads the end of the text only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

namespace longspec {

// The positions that a draft model knows something of: it runs at those that it was trained for, and says so
// where it has to stop; and it drafts from states of the target that it has seen.
class TrainedRange {
 public:
  // `positions` 0: not known, so there is no end.
  TrainedRange(std::string path, int positions) : path_(std::move(path)), positions_(positions) {}

  // Levels that a tree below the last of so many committed tokens may have; none: the range is left.
  int LevelsLeft(size_t n_committed) const {
    return positions_ == 0 ? 1 << 30 : positions_ + 1 - static_cast<int>(n_committed);
  }
  // The same, of a tree that is to be grown.
  int LevelsToGrow(size_t n_committed) {
    const int left = LevelsLeft(n_committed);
    left_ = left <= 0;
    return left;
  }

  // It drafts with the states of so many of the positions that there are.
  void Sees(size_t n_read, size_t n_positions) {
    n_unread_ = n_positions - n_read;
    n_positions_ = n_positions;
  }

  std::string notice() const {
    if (left_) {
      return "the draft model " + path_ + " was trained for " + std::to_string(positions_) +
             " positions: beyond them nothing was proposed";
    }
    if (static_cast<double>(n_unread_) > kFewUnread * static_cast<double>(n_positions_)) {
      return std::to_string(n_unread_) + " of " + std::to_string(n_positions_) +
             " positions were computed while the draft model " + path_ +
             " did not read along: it drafted without them";
    }
    return {};
  }

 private:
  static constexpr double kFewUnread = 0.1;  // share of the positions that may be missing without a word

  std::string path_;
  int positions_;
  bool left_ = false;
  size_t n_unread_ = 0, n_positions_ = 0;
};

// Which part of a text a draft reads that does not read all of it: its end. A draft that knows short texts
// only goes on in long ones this way, with memory and time that do not grow with them. The part grows with
// the text. It begins anew, further on, where it would outgrow what the draft was trained for, and where
// reading on would take longer than beginning anew.
//
// Example: a draft for 1,024 positions that begins with 64. Of a prompt of 5,000 tokens it reads the last
// 64, then what is accepted; after 960 tokens it begins anew with the last 64.
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
