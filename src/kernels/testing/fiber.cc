// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/fiber.h"

#include <cstdint>

#include "kernels/testing/sanitizers.h"

#ifdef LONGSPEC_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LONGSPEC_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

// Puts what a function must keep on its stack, leaves that in *from, and goes on where `to` was left.
extern "C" void longspec_switch_stack(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl longspec_switch_stack
.type longspec_switch_stack, @function
longspec_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size longspec_switch_stack, .-longspec_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.globl longspec_switch_stack
.type longspec_switch_stack, %function
longspec_switch_stack:
  sub sp, sp, #160
  stp x29, x30, [sp]
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x29, x30, [sp]
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size longspec_switch_stack, .-longspec_switch_stack
)");
#endif

namespace longspec::kernels::testing {
namespace {

// Of this thread: who ran before the switch under way, and who runs after it.
thread_local Fiber* previous = nullptr;
thread_local Fiber* current = nullptr;

// A stack as longspec_switch_stack leaves one, whose function is about to begin.
void* StackAtEntry(char* stack, size_t bytes, void (*entry)()) {
  const auto end = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15};
#if defined(__x86_64__)
  auto** top = reinterpret_cast<void**>(end) - 8;  // six registers, the address, and what it would return to
  for (int i = 0; i < 8; ++i) top[i] = nullptr;
  top[6] = reinterpret_cast<void*>(entry);
#else
  auto** top = reinterpret_cast<void**>(end) - 20;
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[1] = reinterpret_cast<void*>(entry);
#endif
  return top;
}

}  // namespace

Fiber::Fiber() {
#ifdef LONGSPEC_THREAD_SANITIZER
  sanitizer_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes, void (*entry)(void*), void* argument)
    : stack_(new char[stack_bytes]),
      stack_begin_(stack_.get()),
      stack_bytes_(stack_bytes),
      entry_(entry),
      argument_(argument),
      stack_pointer_(StackAtEntry(stack_.get(), stack_bytes, Enter)) {
#ifdef LONGSPEC_THREAD_SANITIZER
  sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef LONGSPEC_THREAD_SANITIZER
  if (stack_ != nullptr) __tsan_destroy_fiber(sanitizer_fiber_);
#endif
}

LONGSPEC_UNSEEN_BY_TSAN void Fiber::Enter() {
  current->Arrived();
  current->entry_(current->argument_);
}

// Tells the address sanitizer on whose stack the thread is, and learns from it where the one it left lies.
LONGSPEC_UNSEEN_BY_TSAN void Fiber::Arrived() {
#ifdef LONGSPEC_ADDRESS_SANITIZER
  const void* begin = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(sanitizer_stack_, &begin, &bytes);
  if (previous->stack_ == nullptr) {
    previous->stack_begin_ = begin;
    previous->stack_bytes_ = bytes;
  }
#endif
}

LONGSPEC_UNSEEN_BY_TSAN void Fiber::SwitchTo(Fiber& to) {
  previous = this;
  current = &to;
#ifdef LONGSPEC_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&sanitizer_stack_, to.stack_begin_, to.stack_bytes_);
#endif
#ifdef LONGSPEC_THREAD_SANITIZER
  __tsan_switch_to_fiber(to.sanitizer_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
  longspec_switch_stack(&stack_pointer_, to.stack_pointer_);
  Arrived();
}

}  // namespace longspec::kernels::testing
