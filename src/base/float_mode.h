// SPDX-License-Identifier: Apache-2.0
//
// The mode in which numbers are computed: rounded to nearest, denormals neither flushed nor read as zero
// (docs/arithmetic.md). A program that was built with -ffast-math and links the library starts in another
// one, and its threads inherit that.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace longspec {

// Of this thread, while one lives.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : before_(Get()) { Set(kDefault); }
  ~DefaultFloatMode() { Set(before_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = unsigned;
  static constexpr Mode kDefault = 0x1F80;  // every exception masked
  static Mode Get() { return _mm_getcsr(); }
  static void Set(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kDefault = 0;
  static Mode Get() {
    Mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Set(Mode mode) { __asm__ volatile("msr fpcr, %0" ::"r"(mode)); }
#else
#error "the floating-point mode of this processor is not known here"
#endif

  const Mode before_;
};

}  // namespace longspec
