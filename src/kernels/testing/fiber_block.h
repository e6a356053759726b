// SPDX-License-Identifier: Apache-2.0
//
// A block of threads as a GPU has them, as fibers: who runs next is random, by a seed, and changes only where
// a thread waits for others. Barriers and operations of a warp are where they wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/testing/fiber.h"
#include "kernels/testing/sanitizers.h"

namespace longspec::kernels::testing {

// What is left out of a kernel on purpose: a test of it has to see that.
struct GpuFaults {
  static constexpr int kNone = -1, kAll = -2;
  int dropped_barrier = kNone;  // the n-th of each thread
  bool dropped_waits = false;   // copies arrive when the thread ends
};

class FiberBlock {
 public:
  static constexpr int kMostThreads = 1024, kWarp = 32;

  // What the lanes of a warp bring to an operation, and take from it.
  struct Meeting {
    uint32_t in[kWarp][12];
    uint32_t out[kWarp][4];
  };
  using Operation = void (*)(Meeting& meeting);

  FiberBlock();

  // Runs body(argument, thread) on all threads. Shared memory is garbage at first.
  void Run(int n_threads, size_t shared_bytes, uint32_t seed, const GpuFaults& faults,
           void (*body)(void*, int), void* argument);

  // For the thread that runs.
  std::byte* shared() { return shared_.get(); }
  int n_threads() const { return n_threads_; }
  const GpuFaults& faults() const { return faults_; }
  void Sync();
  // Waits until all lanes of the warp called with the same operation; it is computed once, between `in` and
  // `out`.
  void Meet(Operation operation, const uint32_t* in, int n_in, uint32_t* out, int n_out);

 private:
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    int n_barriers = 0;
  };
  struct Warp {
    Meeting meeting;
    Operation operation = nullptr;
    int n_arrived = 0;
    uint32_t generation = 0;
    Ordering ordering[2];
  };

  static void Threads(void* self);
  void Finish();
  int TakeReady();
  void Wait();
  void ReleaseBarrier();

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  int n_threads_ = 0, n_live_ = 0, now_ = 0;
  int ready_[kMostThreads] = {}, n_ready_ = 0;
  int at_barrier_[kMostThreads] = {}, n_at_barrier_ = 0;
  uint32_t barrier_generation_ = 0;
  uint32_t random_ = 1;
  std::unique_ptr<std::byte[]> shared_;
  GpuFaults faults_;
  void (*body_)(void*, int) = nullptr;
  void* argument_ = nullptr;
  Fiber* caller_ = nullptr;
  Ordering begin_, end_, barrier_[2];
};

}  // namespace longspec::kernels::testing
