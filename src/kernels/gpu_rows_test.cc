// SPDX-License-Identifier: Apache-2.0
//
// A GPU's bodies over several rows, on fibers, and whether their tests see a barrier that is left out.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/fiber_device.h"
#include "kernels/testing/row_cases.h"

namespace longspec::kernels::testing {
namespace {

using OfRows = RowCases<FiberDevice>;

TEST(GpuRowsTest, AreTheReferences) { EXPECT_THAT(OfRows::All(), ::testing::IsEmpty()); }

// In any of some runs, each of which has another order of threads.
template <typename F>
bool IsSeen(const F& is_right, int dropped_barrier) {
  bool seen = false;
  for (int run = 0; run < 8 && !seen; ++run) {
    gpu_faults = {.dropped_barrier = dropped_barrier};
    seen = !is_right();
    gpu_faults = {};
  }
  return seen;
}

TEST(GpuRowsTest, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer would find it";
  // Of a norm in three pieces: before and after each is brought, but before the first, and the scale.
  for (int n = 0; n < 6; ++n) EXPECT_TRUE(IsSeen([] { return OfRows::Norm(9000, 1); }, n)) << n;
  // The parts of a search: their warps, and in the draw the key to beat and the warps once more.
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(IsSeen(OfRows::Choice, n)) << n;
}

}  // namespace
}  // namespace longspec::kernels::testing
