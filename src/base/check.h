// SPDX-License-Identifier: Apache-2.0
//
// LS_CHECK(condition): for what only a bug in longspec can cause. Input never reaches one.
#pragma once

namespace longspec {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace longspec

#define LS_CHECK(condition)                                    \
  do {                                                         \
    if (!(condition)) [[unlikely]] {                           \
      ::longspec::CheckFailed(#condition, __FILE__, __LINE__); \
    }                                                          \
  } while (false)
