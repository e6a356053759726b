// SPDX-License-Identifier: Apache-2.0
//
// A persistent team of threads that runs one function on all of them at once, the caller among them. Inside,
// workers meet at barriers that cost a few hundred nanoseconds while the team is busy. One that waits for
// another longer than work is ever uneven sleeps, since the system has stopped the other, and the core is
// wanted. Between runs the team spins for about a millisecond and then sleeps. Run is called from one thread
// at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "longspec/status.h"

namespace longspec {

class ThreadTeam {
 public:
  class Worker {
   public:
    int index() const { return index_; }
    int count() const { return team_->size(); }

    // Returns when every worker of the team has called it.
    void Barrier() { team_->Arrive(); }

    // Dynamic sharing: each call returns the next unclaimed number since the last barrier (0, 1, 2, ...).
    int Claim() {
      const uint32_t phase = team_->phase_.load(std::memory_order_relaxed);
      return team_->claimed_[phase & 1].fetch_add(1, std::memory_order_relaxed);
    }

    // Static sharing: this worker's part [begin, end) of n items.
    struct Share {
      int begin, end;
    };
    Share ShareOf(int n) const {
      const auto part = [&](int i) { return static_cast<int>(static_cast<int64_t>(n) * i / team_->size()); };
      return {part(index_), part(index_ + 1)};
    }

   private:
    friend class ThreadTeam;
    Worker(ThreadTeam* team, int index) : team_(team), index_(index) {}
    ThreadTeam* team_;
    int index_;
  };

  // REQUIRES: n_threads >= 1. Throws std::system_error if the system refuses a thread.
  explicit ThreadTeam(int n_threads);
  // The same as a Status, which names --threads.
  static Result<std::unique_ptr<ThreadTeam>> Start(int n_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }
  // Met since the team began, the one that ends each run among them; wraps around.
  uint32_t barriers() const { return phase_.load(std::memory_order_relaxed); }

  // Calls f(Worker&) on every thread of the team and returns when all have finished.
  template <typename F>
  void Run(F&& f) {
    using Function = std::remove_reference_t<F>;
    RunErased([](void* context, Worker& worker) { (*static_cast<Function*>(context))(worker); },
              const_cast<void*>(static_cast<const void*>(&f)));
  }

  // The number of distinct physical cores this process may run on, at most as many as its control groups'
  // quota allows the time of, at least 1. `root` replaces "/" in tests, for that quota.
  static int UsableCores(const std::string& root = "");

 private:
  using Entry = void (*)(void*, Worker&);
  void RunErased(Entry entry, void* context);
  void ThreadMain(int index);
  void End();
  void Arrive();

  const int size_;
  std::vector<std::thread> threads_;

  // One job at a time: entry_ and context_ are written before epoch_ rises and read after.
  Entry entry_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<int> caller_cpu_{-1};  // where Run was called when last someone slept
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<int> waiters_{0};  // that sleep at the barrier
  // Claim counters by parity of the phase: the last to arrive at a barrier clears the one of the phase
  // before, which nobody reads any more, for the phase that begins.
  alignas(64) std::atomic<int> claimed_[2] = {0, 0};
};

}  // namespace longspec
