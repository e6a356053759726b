// SPDX-License-Identifier: Apache-2.0
//
// A draft model runs at positions that it was trained for, and says so where it has to stop.
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

  std::string notice() const {
    if (!left_) return {};
    return "the draft model " + path_ + " was trained for " + std::to_string(positions_) +
           " positions: beyond them nothing was proposed";
  }

 private:
  std::string path_;
  int positions_;
  bool left_ = false;
};

}  // namespace longspec
