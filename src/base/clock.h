// SPDX-License-Identifier: Apache-2.0
//
// Monotonic time in milliseconds, for statistics and for what decides how much is guessed. Nothing that
// decides output may read it.
#pragma once

#include <chrono>
#include <utility>

namespace longspec {

// For tests of what measures time: while one lives, the time of this thread is its own. It goes on in
// SpendMs, and by `look_ms` with each look at it. What is computed takes no time, so that a busy machine
// changes nothing.
class SimulatedClock {
 public:
  explicit SimulatedClock(double look_ms = 0)
      : time_{.ms = 0, .look_ms = look_ms}, outer_(std::exchange(now_, &time_)) {}
  ~SimulatedClock() { now_ = outer_; }
  SimulatedClock(const SimulatedClock&) = delete;
  SimulatedClock& operator=(const SimulatedClock&) = delete;

 private:
  friend double NowMs();
  friend void SpendMs(double ms);

  struct Time {
    double ms, look_ms;
  };

  static constinit inline thread_local Time* now_ = nullptr;  // of the innermost
  Time time_;
  Time* const outer_;
};

inline double NowMs() {
  if (SimulatedClock::now_ != nullptr) return SimulatedClock::now_->ms += SimulatedClock::now_->look_ms;
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

// Takes so long, and a core meanwhile: it plays work of a chosen price.
inline void SpendMs(double ms) {
  if (SimulatedClock::now_ != nullptr) {
    SimulatedClock::now_->ms += ms > 0 ? ms : 0;
    return;
  }
  const double end = NowMs() + ms;
  while (NowMs() < end) {
  }
}

}  // namespace longspec
