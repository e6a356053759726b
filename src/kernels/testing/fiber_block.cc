// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/fiber_block.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace longspec::kernels::testing {
namespace {

constexpr size_t kStackBytes = 128 << 10;

[[noreturn]] void Stuck(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

}  // namespace

FiberBlock::FiberBlock() : threads_(kMostThreads), warps_(kMostThreads / kWarp) {}

void FiberBlock::Run(int n_threads, size_t shared_bytes, uint32_t seed, const GpuFaults& faults,
                     void (*body)(void*, int), void* argument) {
  n_threads_ = n_live_ = n_ready_ = n_threads;
  if (n_threads < kWarp || n_threads > kMostThreads || n_threads % kWarp != 0) Stuck("no such block");
  random_ = seed * 2654435761U | 1;
  faults_ = faults;
  body_ = body;
  argument_ = argument;
  shared_.reset(new std::byte[shared_bytes]);
  std::memset(shared_.get(), static_cast<int>(0xA5 + seed), shared_bytes);
  n_at_barrier_ = 0;
  for (int i = 0; i < n_threads; ++i) {
    ready_[i] = i;
    Thread& thread = threads_[static_cast<size_t>(i)];
    thread.n_barriers = 0;
    if (thread.fiber == nullptr) thread.fiber = std::make_unique<Fiber>(kStackBytes, Threads, this);
  }
  for (int i = 0; i < n_threads / kWarp; ++i) warps_[static_cast<size_t>(i)].n_arrived = 0;
  Fiber caller;
  caller_ = &caller;
  begin_.Release();
  {
    const UnseenByTsan unseen;
    now_ = TakeReady();
    caller.SwitchTo(*threads_[static_cast<size_t>(now_)].fiber);
  }
  end_.Acquire();
}

// What a fiber does all its life: a thread of one block after the other.
void FiberBlock::Threads(void* self) {
  auto& block = *static_cast<FiberBlock*>(self);
  for (;;) {
    block.begin_.Acquire();
    int thread;
    {
      const UnseenByTsan unseen;
      thread = block.now_;
    }
    block.body_(block.argument_, thread);
    block.end_.Release();
    block.Finish();
  }
}

void FiberBlock::Finish() {
  const UnseenByTsan unseen;
  Fiber& fiber = *threads_[static_cast<size_t>(now_)].fiber;
  if (--n_live_ == 0) {
    fiber.SwitchTo(*caller_);
    return;
  }
  if (n_at_barrier_ == n_live_) ReleaseBarrier();  // who has ended is waited for no longer
  now_ = TakeReady();
  fiber.SwitchTo(*threads_[static_cast<size_t>(now_)].fiber);
}

int FiberBlock::TakeReady() {
  if (n_ready_ == 0) Stuck("threads wait for others of the block or warp that never come");
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  const auto at = static_cast<int>(uint64_t{random_} * static_cast<uint32_t>(n_ready_) >> 32);
  const int thread = ready_[at];
  ready_[at] = ready_[--n_ready_];
  return thread;
}

// Until somebody makes this thread ready.
void FiberBlock::Wait() {
  const int before = now_;
  now_ = TakeReady();
  if (now_ == before) return;
  threads_[static_cast<size_t>(before)].fiber->SwitchTo(*threads_[static_cast<size_t>(now_)].fiber);
}

void FiberBlock::ReleaseBarrier() {
  ++barrier_generation_;
  for (int i = 0; i < n_at_barrier_; ++i) ready_[n_ready_++] = at_barrier_[i];
  n_at_barrier_ = 0;
}

void FiberBlock::Sync() {
  Ordering* ordering;
  {
    const UnseenByTsan unseen;
    const int n = threads_[static_cast<size_t>(now_)].n_barriers++;
    if (faults_.dropped_barrier == GpuFaults::kAll || faults_.dropped_barrier == n) return;
    ordering = &barrier_[barrier_generation_ % 2];
  }
  ordering->Release();
  {
    const UnseenByTsan unseen;
    at_barrier_[n_at_barrier_++] = now_;
    if (n_at_barrier_ == n_live_) ReleaseBarrier();
    Wait();
  }
  ordering->Acquire();
}

void FiberBlock::Meet(Operation operation, const uint32_t* in, int n_in, uint32_t* out, int n_out) {
  Ordering* ordering;
  {
    const UnseenByTsan unseen;
    ordering = &warps_[static_cast<size_t>(now_ / kWarp)].ordering[0];
    ordering += warps_[static_cast<size_t>(now_ / kWarp)].generation % 2;
  }
  ordering->Release();
  {
    const UnseenByTsan unseen;
    const int lane = now_ % kWarp;
    Warp& warp = warps_[static_cast<size_t>(now_ / kWarp)];
    if (warp.n_arrived == 0) warp.operation = operation;
    if (warp.operation != operation) Stuck("lanes of a warp meet in different operations");
    std::memcpy(warp.meeting.in[lane], in, static_cast<size_t>(n_in) * 4);
    if (++warp.n_arrived == kWarp) {
      operation(warp.meeting);
      warp.n_arrived = 0;
      ++warp.generation;
      const int first = now_ - lane;
      for (int i = 0; i < kWarp; ++i) ready_[n_ready_++] = first + i;
    }
    Wait();
    std::memcpy(out, warp.meeting.out[lane], static_cast<size_t>(n_out) * 4);
  }
  ordering->Acquire();
}

}  // namespace longspec::kernels::testing
