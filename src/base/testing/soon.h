// SPDX-License-Identifier: Apache-2.0
//
// For tests of what another thread does: it is waited for as long as a busy machine may take.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace longspec::testing {

// `what` becomes true within a minute; a failure names the description.
inline void ExpectSoon(const std::function<bool()>& what, const std::string& description) {
  for (int i = 0; i < 6000 && !what(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(what()) << description;
}

}  // namespace longspec::testing
