// SPDX-License-Identifier: Apache-2.0
//
// For tests: a memory like that of a device. Whoever touches an address of it while it is shut dies; it is
// open to what computes there, and to copies.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <new>

#include "base/check.h"

namespace longspec::testing {

// Thread-safe.
class GuardedPages {
 public:
  GuardedPages() = default;
  ~GuardedPages() { LS_CHECK(sizes_.empty()); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  // Zeros.
  std::byte* Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes = (bytes + kPage) / kPage * kPage;
    void* const at = mmap(nullptr, bytes, protection(), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    sizes_[static_cast<std::byte*>(at)] = bytes;
    return static_cast<std::byte*>(at);
  }
  void Return(std::byte* at) {
    const std::lock_guard lock(mutex_);
    const auto taken = sizes_.find(at);
    LS_CHECK(taken != sizes_.end());
    munmap(at, taken->second);
    sizes_.erase(taken);
  }
  bool Holds(const void* at) const {
    const std::lock_guard lock(mutex_);
    auto next = sizes_.upper_bound(static_cast<std::byte*>(const_cast<void*>(at)));
    if (next == sizes_.begin()) return false;
    --next;
    return at < next->first + next->second;
  }

  // All of it is open as long as one of these lives.
  class Opening {
   public:
    explicit Opening(GuardedPages& pages) : pages_(pages) { pages_.Open(1); }
    ~Opening() { pages_.Open(-1); }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    GuardedPages& pages_;
  };

 private:
  static constexpr size_t kPage = 4096;

  int protection() const { return n_open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE; }
  void Open(int more) {
    const std::lock_guard lock(mutex_);
    const int before = protection();
    n_open_ += more;
    if (protection() == before) return;
    for (const auto& [at, bytes] : sizes_) LS_CHECK(mprotect(at, bytes, protection()) == 0);
  }

  mutable std::mutex mutex_;
  int n_open_ = 0;
  std::map<std::byte*, size_t> sizes_;  // of what is taken
};

}  // namespace longspec::testing
