// SPDX-License-Identifier: Apache-2.0
//
// Short measurements of several things that take turns, so that a machine that is slower for a while is
// slower for all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "longspec/status.h"

namespace longspec {

struct Times {
  std::vector<double> ms;  // in the order they were taken
  double median = 0, least = 0;
};

// ms(i) for i < n, round by round: each once to warm up, then `least_rounds` times, and short ones more
// often.
template <typename Ms>
Result<std::vector<Times>> InTurn(size_t n, int least_rounds, Ms ms) {
  constexpr double kLeastMs = 1500;
  constexpr int kMostRounds = 40;
  for (size_t i = 0; i < n; ++i) LS_TRY(ms(i).status());
  std::vector<Times> times(n);
  const double begin = NowMs();
  for (int round = 0; round < least_rounds || (round < kMostRounds && NowMs() - begin < kLeastMs); ++round) {
    for (size_t i = 0; i < n; ++i) {
      LS_ASSIGN(const double took, ms(i));
      times[i].ms.push_back(took);
    }
  }
  for (Times& t : times) {
    t.median = Median(t.ms);
    t.least = *std::min_element(t.ms.begin(), t.ms.end());
  }
  return times;
}

}  // namespace longspec
