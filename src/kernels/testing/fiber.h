// SPDX-License-Identifier: Apache-2.0
//
// Threads of control that give way by hand: a switch saves a few registers and makes no system call. Address
// and thread sanitizers are told of it.
#pragma once

#include <cstddef>
#include <memory>

namespace longspec::kernels::testing {

class Fiber {
 public:
  Fiber();  // of who runs now: only to come back to
  // The first switch to it calls entry(argument), which must not return.
  Fiber(size_t stack_bytes, void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs `to` until somebody switches to `this`, which runs now. What one did before a switch is not ordered
  // before what another does after it, as far as the thread sanitizer knows.
  void SwitchTo(Fiber& to);

 private:
  static void Enter();
  void Arrived();

  std::unique_ptr<char[]> stack_;
  const void* stack_begin_ = nullptr;
  [[maybe_unused]] size_t stack_bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* stack_pointer_ = nullptr;
  [[maybe_unused]] void* sanitizer_stack_ = nullptr;  // the address sanitizer's
  [[maybe_unused]] void* sanitizer_fiber_ = nullptr;  // the thread sanitizer's
};

}  // namespace longspec::kernels::testing
