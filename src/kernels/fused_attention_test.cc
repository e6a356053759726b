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

TEST(FusedAttentionTest, ItemsAreLargeWhereThereAreEnoughOfThem) {
  EXPECT_EQ(gpu::EntriesOf(1, 6, 514, 132), 8);
  EXPECT_EQ(gpu::EntriesOf(1, 12, 514, 132), 16);
  EXPECT_EQ(gpu::EntriesOf(8, 6, 10, 132), 8);    // 80 blocks
  EXPECT_EQ(gpu::EntriesOf(8, 6, 130, 132), 32);  // 260
  EXPECT_EQ(gpu::EntriesOf(8, 6, 514, 132), 64);
  EXPECT_EQ(gpu::EntriesOf(3, 6, 514, 132), 32);
  EXPECT_EQ(gpu::EntriesOf(64, 4, 40, 132), 64);
}

// Whether the case sees that something is left out.
template <KvType T = KvType::kF16>
bool IsSeen(const SeenByRows& rows, const GpuFaults& faults) {
  const AttentionCase test({T, T, 64, 1, 4}, rows, 2, 78);
  const AttentionCase::Result expected = test.Reference();
  gpu_faults = faults;
  const AttentionCase::Result actual = test.On<FiberDevice, T, T, 64, 8, 3>();
  gpu_faults = {};
  return !Same(expected.states, actual.states) || !Same(expected.out, actual.out);
}

TEST(FusedAttentionTest, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer would find it";
  EXPECT_FALSE(IsSeen(kTree, {}));
  // Two stages of keys, the scores, and as many stages of values as a whole chunk has.
  for (int n = 0; n < 2 + 1 + 2; ++n) EXPECT_TRUE(IsSeen(kTree, {.dropped_barrier = n})) << n;
  EXPECT_TRUE(IsSeen(kTree, {.dropped_waits = true}));
  // Integers of values are made between a stage's arrival and its use.
  EXPECT_FALSE(IsSeen<KvType::kI8>(kTree, {}));
  for (int n = 0; n < 2 + 1 + 2 * 2; ++n)
    EXPECT_TRUE(IsSeen<KvType::kI8>(kTree, {.dropped_barrier = n})) << n;
  // Scores, numerators. Without the one before, of what rows see, any address could be read.
  EXPECT_FALSE(IsSeen(kTreeAtStart, {}));
  for (int n = 1; n < 3; ++n) EXPECT_TRUE(IsSeen(kTreeAtStart, {.dropped_barrier = n})) << n;
}

}  // namespace
}  // namespace longspec::kernels::testing
