// SPDX-License-Identifier: Apache-2.0
//
// Which sanitizer this is compiled for, and what fibers tell the thread sanitizer.
#pragma once

#include "base/testing/sanitized.h"

#if defined(__SANITIZE_ADDRESS__)
#define LONGSPEC_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define LONGSPEC_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LONGSPEC_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define LONGSPEC_THREAD_SANITIZER 1
#endif
#endif

#ifdef LONGSPEC_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>

#define LONGSPEC_UNSEEN_BY_TSAN __attribute__((no_sanitize_thread))
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#else
#define LONGSPEC_UNSEEN_BY_TSAN
#endif

namespace longspec::kernels::testing {

// What a kernel leaves out on purpose is then the sanitizer's finding, not the test's.
using longspec::testing::kSanitized;

// While one lives, what its fiber reads and writes is no race.
class UnseenByTsan {
 public:
#ifdef LONGSPEC_THREAD_SANITIZER
  UnseenByTsan() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~UnseenByTsan() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  UnseenByTsan() {}   // NOLINT(modernize-use-equals-default): what has neither would be unused
  ~UnseenByTsan() {}  // NOLINT(modernize-use-equals-default)
#endif
  UnseenByTsan(const UnseenByTsan&) = delete;
  UnseenByTsan& operator=(const UnseenByTsan&) = delete;
};

// What was done before a Release is ordered before what is done after an Acquire of the same.
struct Ordering {
  void Release() {
#ifdef LONGSPEC_THREAD_SANITIZER
    __tsan_release(this);
#endif
  }
  void Acquire() {
#ifdef LONGSPEC_THREAD_SANITIZER
    __tsan_acquire(this);
#endif
  }
  char at = 0;
};

}  // namespace longspec::kernels::testing
