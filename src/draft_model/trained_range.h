// SPDX-License-Identifier: Apache-2.0
//
// The positions that a draft model knows something of: it runs at those that it was trained for, and says so
// where it has to stop; and it drafts from states of the target that it has seen.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace longspec {

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

}  // namespace longspec
