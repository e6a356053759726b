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

  // Levels that a tree below the last of so many committed tokens may have; none: it was left.
  int LevelsLeft(size_t n_committed) {
    if (positions_ == 0) return 1 << 30;
    const int left = positions_ + 1 - static_cast<int>(n_committed);
    left_ = left_ || left <= 0;
    return left;
  }

  // It drafts without the states of positions before this one.
  void Begin(int position) { first_ = position; }

  std::string notice() const {
    if (left_) {
      return "the draft model " + path_ + " was trained for " + std::to_string(positions_) +
             " positions: beyond them nothing was proposed";
    }
    if (first_ > 0) {
      return "the first " + std::to_string(first_) + " positions were not computed while the draft model " +
             path_ + " read along: it drafts from what came after them";
    }
    return {};
  }

 private:
  std::string path_;
  int positions_;
  bool left_ = false;
  int first_ = 0;
};

}  // namespace longspec
