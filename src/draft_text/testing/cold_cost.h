// SPDX-License-Identifier: Apache-2.0
//
// What an operation costs while a model is being run: between two tokens its weights pass through the caches,
// and whatever a drafter keeps has to come from memory again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

namespace longspec::testing {

// The median of `n` calls in nanoseconds, other data having passed through the caches before each.
inline double ColdNanoseconds(int n, const std::function<void()>& operation) {
  std::vector<int64_t> passing(size_t{6} << 20, 1);  // 48 MiB
  std::vector<double> times;
  volatile int64_t sink = 0;
  for (int i = 0; i < n; ++i) {
    int64_t sum = 0;
    for (size_t at = 0; at < passing.size(); at += 8) sum += passing[at]++;
    sink = sink + sum;
    const auto start = std::chrono::steady_clock::now();
    operation();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + n / 2, times.end());
  return times[static_cast<size_t>(n / 2)];
}

// How many times as long one operation takes as another, by medians of cold calls: the least of a few
// attempts, since other programs only ever make a ratio of equals look worse. Stops at the first below
// `enough`.
inline double LeastColdRatio(const std::function<void()>& operation, const std::function<void()>& other,
                             double enough) {
  constexpr int kAttempts = 5, kCalls = 60;
  double least = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double base = ColdNanoseconds(kCalls, other), time = ColdNanoseconds(kCalls, operation);
    std::printf("attempt %d: %.0f ns and %.0f ns\n", attempt + 1, base, time);
    least = attempt == 0 ? time / base : std::min(least, time / base);
    if (least < enough) break;
  }
  return least;
}
constexpr size_t kMostColdCalls = 300;  // of each operation

}  // namespace longspec::testing
