// SPDX-License-Identifier: Apache-2.0
//
// What a drafter's proposal takes, by its number of levels: a + b levels, a line through what was observed
// lately. Each level of a draft is another pass of whatever it drafts with, so how deep it is asked decides
// what it takes. The line goes through running means of levels and of time, and its slope is that of least
// squares over a longer while, of each proposal beside the means before it: a machine that gets slower for
// all moves the line and leaves its slope alone. As long as all proposals had equally many levels there is no
// slope: then time is taken to be nearly in proportion. A slow proposal (a page fault, another process)
// counts for twice what was expected. Three in a row that took far more or far less than that are a change,
// and what was known counts for half. The very first counts for nothing if the second took far less. Not
// thread-safe.
#pragma once

#include <algorithm>

#include "base/running_mean.h"

namespace longspec {

class DraftTime {
 public:
  // A proposal of so many levels took so long; one that is empty counts for the levels it was asked for.
  // REQUIRES: levels > 0
  void Add(int levels, double ms) {
    const double expected = Ms(levels);
    const bool slow = known() && ms > kFar * expected, fast = known() && kFar * ms < expected;
    const bool first = !known() || (!sure_ && fast);
    sure_ = known();
    n_far_ = !first && (slow || fast) ? n_far_ + 1 : 0;
    const bool changed = n_far_ >= kChange;
    const double rate = first ? 1 : changed ? kRateOfChange : RunningMean::kRate;
    mean_.Add(ms);
    if (slow && !changed) ms = kFar * expected;
    const double more_levels = levels - mean_levels_, more_ms = ms - mean_ms_;
    const double keep = changed ? 1 - kRateOfChange : kKeep;
    levels_levels_ = keep * levels_levels_ + (1 - rate) * more_levels * more_levels;
    levels_ms_ = keep * levels_ms_ + (1 - rate) * more_levels * more_ms;
    mean_levels_ += rate * more_levels;
    mean_ms_ += rate * more_ms;
  }

  bool known() const { return mean_.known(); }
  // Whether more is known than a first time, which often takes longer than others.
  bool sure() const { return sure_; }
  // What a proposal took lately, whatever its number of levels; slow ones count for all that they took.
  double mean_ms() const { return mean_.value(); }
  // What a proposal of so many levels is expected to take.
  double Ms(int levels) const { return fixed_ms() + levels * level_ms(); }

  double fixed_ms() const { return std::max(0.0, mean_ms_ - mean_levels_ * level_ms()); }
  double level_ms() const {
    if (!known()) return 0;
    const double most = mean_ms_ / mean_levels_;  // then nothing is fixed
    const double at_first = (1 - kFixedShare) * most;
    return std::clamp((levels_ms_ + kDoubt * at_first) / (levels_levels_ + kDoubt), 0.0, most);
  }

 private:
  static constexpr double kKeep = 0.95;       // of what the slope is made of
  static constexpr double kFixedShare = 0.1;  // of the time, while the slope is unknown
  static constexpr double kDoubt = 0.25;      // squared levels that this counts for
  static constexpr double kFar = 2;           // times what was expected, or a part of it
  static constexpr int kChange = 3;           // so many in a row
  static constexpr double kRateOfChange = 0.5;

  RunningMean mean_;
  bool sure_ = false;
  int n_far_ = 0;                             // the last ones, from what was expected
  double mean_levels_ = 0, mean_ms_ = 0;      // where the line goes through
  double levels_levels_ = 0, levels_ms_ = 0;  // faded sums of squares and products about the means
};

}  // namespace longspec
