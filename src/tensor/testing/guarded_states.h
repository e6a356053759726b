// SPDX-License-Identifier: Apache-2.0
//
// For tests: a memory like that of a device. The host reads and writes it in copies only; whoever touches an
// address of it otherwise dies.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>

#include "base/check.h"
#include "tensor/state_rows.h"

namespace longspec::testing {

class GuardedStates final : public StateMemory {
 public:
  ~GuardedStates() override { LS_CHECK(sizes_.empty()); }

  float* Take(size_t floats) const override {
    const size_t bytes = (floats * sizeof(float) + kPage) / kPage * kPage;
    void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    sizes_[static_cast<std::byte*>(at)] = bytes;
    return static_cast<float*>(at);
  }
  void Return(float* at) const override {
    const auto taken = sizes_.find(reinterpret_cast<std::byte*>(at));
    LS_CHECK(taken != sizes_.end());
    munmap(at, taken->second);
    sizes_.erase(taken);
  }
  void Copy(const float* from, size_t floats, float* to) const override {
    if (floats == 0) return;
    LS_CHECK(Holds(from));
    Open(from, PROT_READ | PROT_WRITE);
    if (Holds(to)) Open(to, PROT_READ | PROT_WRITE);
    std::memcpy(to, from, floats * sizeof(float));
    if (Holds(to)) Open(to, PROT_NONE);
    Open(from, PROT_NONE);
    ++n_copies;
  }

  // From the host, as a pass on the device would write it.
  void Write(const float* from, size_t floats, float* to) const {
    if (floats == 0) return;
    Open(to, PROT_READ | PROT_WRITE);
    std::memcpy(to, from, floats * sizeof(float));
    Open(to, PROT_NONE);
  }
  bool Holds(const float* at) const { return Find(at) != sizes_.end(); }

  mutable int64_t n_copies = 0;

 private:
  static constexpr size_t kPage = 4096;

  std::map<std::byte*, size_t>::const_iterator Find(const float* at) const {
    const auto* const byte = reinterpret_cast<const std::byte*>(at);
    auto next = sizes_.upper_bound(const_cast<std::byte*>(byte));
    if (next == sizes_.begin()) return sizes_.end();
    --next;
    return byte < next->first + next->second ? next : sizes_.end();
  }
  void Open(const float* at, int protection) const {
    const auto held = Find(at);
    LS_CHECK(held != sizes_.end() && mprotect(held->first, held->second, protection) == 0);
  }

  mutable std::map<std::byte*, size_t> sizes_;  // of what is taken
};

}  // namespace longspec::testing
