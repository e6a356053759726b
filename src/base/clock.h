// SPDX-License-Identifier: Apache-2.0
//
// Monotonic time in milliseconds, for statistics. Nothing that decides output may read it.
#pragma once

#include <chrono>

namespace longspec {

inline double NowMs() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

}  // namespace longspec
