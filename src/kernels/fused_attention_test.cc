// SPDX-License-Identifier: Apache-2.0
//
// A GPU's attention over whole passes, on fibers, against the reference's operations one by one.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/fiber_device.h"
#include "kernels/testing/fused_attention_cases.h"

namespace longspec::kernels::testing {
namespace {

using Cases = FusedAttentionCases<FiberDevice>;
using ::testing::IsEmpty;

TEST(FusedAttentionTest, OfAllTypesIsTheReferences) { EXPECT_THAT(Cases::OfTypes(), IsEmpty()); }
TEST(FusedAttentionTest, OfAllKindsOfRowsIsTheReferences) { EXPECT_THAT(Cases::OfRows(), IsEmpty()); }
TEST(FusedAttentionTest, OfAllSizesIsTheReferences) { EXPECT_THAT(Cases::OfSizes(), IsEmpty()); }

// Whether the case sees that something is left out.
bool IsSeen(const SeenByRows& rows, const GpuFaults& faults) {
  const AttentionCase test({KvType::kF16, KvType::kF16, 64, 1, 4}, rows, 2, 78);
  const AttentionCase::Result expected = test.Reference();
  gpu_faults = faults;
  const AttentionCase::Result actual = test.On<FiberDevice, KvType::kF16, KvType::kF16, 64, 8, 3>();
  gpu_faults = {};
  return !Same(expected.states, actual.states) || !Same(expected.out, actual.out);
}

TEST(FusedAttentionTest, EveryBarrierIsNeeded) {
  EXPECT_FALSE(IsSeen(kTree, {}));
  // Two stages of keys, the scores, and as many stages of values as a whole chunk has.
  for (int n = 0; n < 2 + 1 + 2; ++n) EXPECT_TRUE(IsSeen(kTree, {.dropped_barrier = n})) << n;
  EXPECT_TRUE(IsSeen(kTree, {.dropped_waits = true}));
  // Queries, scores, numerators.
  EXPECT_FALSE(IsSeen(kTreeAtStart, {}));
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(IsSeen(kTreeAtStart, {.dropped_barrier = n})) << n;
}

}  // namespace
}  // namespace longspec::kernels::testing
