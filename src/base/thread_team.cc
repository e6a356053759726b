// SPDX-License-Identifier: Apache-2.0
#include "base/thread_team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/cgroups.h"
#include "base/check.h"
#include "base/float_mode.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace longspec {
namespace {

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // takes about as long as x86's pause; most cores ignore yield
#else
  std::this_thread::yield();
#endif
}

constexpr int kIdleSpins = 40000;  // about a millisecond of pauses before an idle worker sleeps
constexpr int kBarrierSpins =
    4000;  // before one that waits for the others does: the system has stopped one of them
constexpr int kCrowdedSpins = 50;  // before either, where workers are more than cores

// Where this process was allowed to run when it was asked first, and how much: who spins uses up the quota of
// those that work.
bool IsCrowded(int n_threads) {
  static const int n_processors = [] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    return std::min(known ? CPU_COUNT(&allowed) : CPU_SETSIZE, CgroupProcessors());
  }();
  return n_threads > n_processors;
}

// Moves the calling thread to the index-th processor after `first`, counted around those it may run on, and
// lets it go again. A scheduler that counts two threads which yield to each other as one that works leaves
// them on one processor for a tenth of a second and more; once apart they stay so.
void SpreadOut(int first, int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int steps = index % std::max(CPU_COUNT(&allowed), 1);
  int cpu = first;
  for (int left = steps; left > 0;) {
    cpu = (cpu + 1) % CPU_SETSIZE;
    if (CPU_ISSET(cpu, &allowed)) --left;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof(one), &one) == 0) sched_setaffinity(0, sizeof(allowed), &allowed);
}

int ReadInt(const std::string& path, int fallback) {
  std::ifstream in(path);
  int value = 0;
  return in >> value ? value : fallback;
}

// Sleeps until somebody wakes those that sleep here, unless `word` is no longer `seen`; may return for
// nothing. Not std::atomic::wait, which yields first: a thread that yields is one that runs, and waits for
// its next turn behind other programs, where one that sleeps is owed time and runs when it is woken.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t seen) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr);
}

void WakeAll(const std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX); }

}  // namespace

ThreadTeam::ThreadTeam(int n_threads) : size_(n_threads) {
  LS_CHECK(n_threads >= 1);
  try {
    for (int i = 1; i < n_threads; ++i) {
      threads_.emplace_back([this, i, first = sched_getcpu()] {
        SpreadOut(std::max(first, 0), i);
        ThreadMain(i);
      });
    }
  } catch (...) {
    End();
    throw;
  }
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::Start(int n_threads) {
  try {
    return std::make_unique<ThreadTeam>(n_threads);
  } catch (const std::system_error& error) {
    return ResourceExhausted("--threads " + std::to_string(n_threads) +
                             ": the system refuses one: " + error.what() + "; give fewer");
  }
}

ThreadTeam::~ThreadTeam() { End(); }

void ThreadTeam::End() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  WakeAll(epoch_);
  for (std::thread& t : threads_) t.join();
}

void ThreadTeam::RunErased(Entry entry, void* context) {
  const DefaultFloatMode mode;
  entry_ = entry;
  context_ = context;
  if (size_ > 1) {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      caller_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
      WakeAll(epoch_);
    }
  }
  Worker worker(this, 0);
  entry(context, worker);
  worker.Barrier();  // all have finished
}

void ThreadTeam::ThreadMain(int index) {
  const DefaultFloatMode mode;
  const int most_spins = IsCrowded(size_) ? kCrowdedSpins : kIdleSpins;
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      if (++spins < most_spins) {
        Pause();
        continue;
      }
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      SleepWhile(epoch_, seen);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      // A thread is often woken on the processor of the one that woke it.
      const int caller = caller_cpu_.load(std::memory_order_relaxed);
      if (caller >= 0 && sched_getcpu() == caller) SpreadOut(caller, index);
    }
    ++seen;  // epochs rise by one per run, and a run ends only when every worker has arrived
    if (stop_.load(std::memory_order_relaxed)) return;
    Worker worker(this, index);
    entry_(context_, worker);
    worker.Barrier();
  }
}

void ThreadTeam::Arrive() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    claimed_[(phase + 1) & 1].store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) > 0) WakeAll(phase_);
    return;
  }
  const int most_spins = IsCrowded(size_) ? kCrowdedSpins : kBarrierSpins;
  for (int spins = 0; phase_.load(std::memory_order_acquire) == phase;) {
    if (++spins < most_spins) {
      Pause();
      continue;
    }
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    SleepWhile(phase_, phase);
    waiters_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

int ThreadTeam::UsableCores(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  std::set<std::pair<int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    cores.emplace(ReadInt(topology + "physical_package_id", 0), ReadInt(topology + "core_id", cpu));
  }
  return std::clamp(static_cast<int>(cores.size()), 1, CgroupProcessors(root));
}

}  // namespace longspec
