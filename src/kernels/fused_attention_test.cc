// SPDX-License-Identifier: Apache-2.0
//
// A GPU's attention over whole passes, on fibers, against the reference's operations one by one.
#include <vector>

#include "kernels/testing/attention_case.h"
#include "kernels/testing/fiber_device.h"
#include "kernels/testing/same_bits.h"

namespace longspec::kernels::testing {
namespace {

using Rows = std::vector<SeenByRow>;

// Each row after the one before it, in a partial last chunk.
const Rows kChain = {{0, 598, 0}, {0, 599, 0}, {0, 600, 0}, {0, 601, 0}, {0, 602, 0}};
// Branches of a tree, and a row that ends before them.
const Rows kTree = {{0, 600, 1}, {0, 600, 2}, {0, 599, 0}, {0, 600, 2}, {0, 600, 7}, {0, 600, 3}};
// Tails that go on in a chunk in which nothing is stored, begin with one, or begin in the first chunk.
const Rows kTreeAcross = {{0, 510, 1}, {0, 510, 5}, {0, 510, 9}};
const Rows kTreeAtBoundary = {{0, 512, 1}, {0, 512, 4}};
const Rows kTreeAtStart = {{0, 0, 1}, {0, 0, 3}, {0, 0, 20}};
// Some see a part of a chunk, none of it, or nothing at all.
const Rows kWindows = {{0, 300, 0}, {100, 300, 0}, {260, 400, 0}, {256, 257, 0}, {290, 290, 0}, {0, 16, 0}};
const Rows kWindowTree = {{20, 300, 2}, {280, 300, 3}, {301, 300, 4}};

template <KvType K, KvType V, int kDims, int kEntries, int kRing = 4>
void ExpectSame(const Rows& rows, int head_dim, int n_kv_head, int group) {
  const AttentionCase test({K, V, head_dim, n_kv_head, group}, rows, kEntries / group, 77);
  const AttentionCase::Result expected = test.Reference();
  const AttentionCase::Result actual = test.On<FiberDevice, K, V, kDims, kEntries, kRing>();
  ASSERT_TRUE(SameBits(expected.states, actual.states)) << "states";
  ASSERT_TRUE(SameBits(expected.out, actual.out)) << "out";
}

template <KvType T>
void ExpectSameOfType() {
  for (const Rows& rows : {kChain, kTree}) {
    ExpectSame<T, T, 64, 8>(rows, 64, 2, 3);
    ExpectSame<T, T, 64, 16>(rows, 32, 1, 5);
  }
  ExpectSame<T, T, 128, 16>(kTree, 96, 1, 4);
  ExpectSame<T, T, 128, 8>(kTreeAcross, 128, 2, 6);
}

TEST(FusedAttentionTest, OfF32) { ExpectSameOfType<KvType::kF32>(); }
TEST(FusedAttentionTest, OfF16) { ExpectSameOfType<KvType::kF16>(); }
TEST(FusedAttentionTest, OfQ8) { ExpectSameOfType<KvType::kQ8_0>(); }
TEST(FusedAttentionTest, OfQ4) { ExpectSameOfType<KvType::kQ4_0>(); }

TEST(FusedAttentionTest, KeysAndValuesMayBeOfTwoTypes) {
  ExpectSame<KvType::kQ8_0, KvType::kF16, 64, 8>(kTree, 64, 1, 4);
  ExpectSame<KvType::kF16, KvType::kQ4_0, 64, 8>(kTree, 32, 2, 1);
}

TEST(FusedAttentionTest, OfEveryKindOfRow) {
  for (const Rows& rows : {kTreeAcross, kTreeAtBoundary, kTreeAtStart, kWindows, kWindowTree}) {
    ExpectSame<KvType::kF16, KvType::kF16, 64, 8>(rows, 48, 2, 2);
    ExpectSame<KvType::kF16, KvType::kF16, 64, 16>(rows, 64, 1, 5);
  }
}

TEST(FusedAttentionTest, OfEverySize) {
  ExpectSame<KvType::kF16, KvType::kF16, 64, 32, 3>(kTree, 16, 1, 7);
  ExpectSame<KvType::kF16, KvType::kF16, 64, 64, 2>(kWindows, 64, 1, 12);
  ExpectSame<KvType::kF16, KvType::kF16, 128, 8, 5>(kChain, 112, 1, 8);
  ExpectSame<KvType::kF16, KvType::kF16, 128, 64>(kTree, 80, 1, 12);
  ExpectSame<KvType::kF16, KvType::kF16, 256, 8>(kTree, 256, 1, 3);
  ExpectSame<KvType::kF16, KvType::kF16, 256, 32>(kChain, 144, 1, 8);
  ExpectSame<KvType::kF16, KvType::kF16, 512, 8, 2>(kTreeAcross, 512, 1, 8);
}

// More parts than are merged at a time.
TEST(FusedAttentionTest, OfManyChunks) {
  ExpectSame<KvType::kQ4_0, KvType::kQ4_0, 64, 8>({{0, 40000, 0}, {9000, 40001, 0}}, 32, 1, 1);
}

class WithFaults {
 public:
  explicit WithFaults(const GpuFaults& faults) { gpu_faults = faults; }
  ~WithFaults() { gpu_faults = {}; }
};

// Whether the case sees that something is left out.
bool IsSeen(const Rows& rows, const GpuFaults& faults) {
  const AttentionCase test({KvType::kF16, KvType::kF16, 64, 1, 4}, rows, 2, 78);
  const AttentionCase::Result expected = test.Reference();
  const WithFaults with(faults);
  const AttentionCase::Result actual = test.On<FiberDevice, KvType::kF16, KvType::kF16, 64, 8, 3>();
  return !SameBits(expected.states, actual.states) || !SameBits(expected.out, actual.out);
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
