// SPDX-License-Identifier: Apache-2.0
//
// The thread that drives the engine: it runs rounds while there is anything to do. Others submit and cancel;
// all callbacks of submissions come from this thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "longspec/scheduler.h"
#include "longspec/status.h"

namespace longspec::server {

struct LoopOptions {
  int most_queued = 64;                                      // requests that wait to start; more are refused
  std::function<void(const SchedulerStats&)> on_stats = {};  // after rounds, on the loop's thread
  std::function<void(const Status&)> on_failure = {};        // a round that failed as a whole
  // What to do while nothing is asked, on the loop's thread. It ends when keep_going says so: whoever asks
  // waits for it.
  std::function<void(const std::function<bool()>& keep_going)> when_idle = {};
};

class EngineLoop {
 public:
  EngineLoop(std::unique_ptr<Scheduler> scheduler, LoopOptions options);
  ~EngineLoop();  // cancels what is left
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  enum class Outcome { kAccepted, kQueueFull, kRefused };
  struct Admission {
    Outcome outcome = Outcome::kRefused;
    int64_t id = 0;
    Status status;  // kRefused: why
  };
  // Any thread, and so below. on_end may have been called when this returns. The loop sets on_start of the
  // request, and of what for_answer makes of it, and calls the one that was there.
  Admission Submit(Submission submission);
  void Cancel(int64_t id);
  // Runs on the loop's thread, between rounds.
  void Post(std::function<void()> task);

  int n_waiting() const;  // requests submitted that have not started
  int n_unended() const;  // requests that were submitted and have answers still to come
  void CancelAll();

 private:
  struct Request;
  void Run();
  bool IsIdle() const;
  bool Round();

  const std::unique_ptr<Scheduler> scheduler_;
  const LoopOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::set<std::shared_ptr<Request>> requests_;  // unended
  int n_waiting_ = 0;
  bool has_work_ = false, stopped_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace longspec::server
