// SPDX-License-Identifier: Apache-2.0
//
// The comparison of every kernel test: memcmp, never a tolerance. A failure names the first place that
// differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"

namespace longspec::kernels::testing {

template <typename T>
::testing::AssertionResult SameBits(std::span<const T> expected, std::span<const T> actual) {
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure() << expected.size() << " values against " << actual.size();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the same bits are asked for
    if (std::memcmp(&expected[i], &actual[i], sizeof(T)) == 0) continue;
    auto failure = ::testing::AssertionFailure() << "first difference at " << i;
    if constexpr (std::is_arithmetic_v<T>) {
      failure << ": " << ::testing::PrintToString(expected[i]) << " expected, got "
              << ::testing::PrintToString(actual[i]);
    }
    return failure;
  }
  return ::testing::AssertionSuccess();
}

template <typename T>
::testing::AssertionResult SameBits(const std::vector<T>& expected, const std::vector<T>& actual) {
  return SameBits(std::span<const T>(expected), std::span<const T>(actual));
}

}  // namespace longspec::kernels::testing
