// SPDX-License-Identifier: Apache-2.0
//
// What is left out of a GPU's products on purpose is seen. That they are right the suites of every table
// show.
#include "kernels/testing/emulated_gpu_table.h"
#include "kernels/testing/fiber_device.h"
#include "kernels/testing/matmul_checks.h"

namespace longspec::kernels::testing {
namespace {

bool IsSeen(const MatmulShape& shape, const GpuFaults& faults) {
  gpu_faults = faults;
  const bool seen = !MatmulSameAsReference(kEmulatedGpuTable, shape, 0, 1);
  gpu_faults = {};
  return seen;
}

TEST(GpuMatmulTest, EveryBarrierOfFewRowsIsNeeded) {
  // More units than are summed between two barriers.
  for (const MatmulShape& shape :
       {MatmulShape{.format = WeightFormat::kU4Min, .n_in = 1024, .n_rows = 5},
        MatmulShape{.format = WeightFormat::kSuperU6Halves, .n_in = 4608, .n_rows = 9}}) {
    EXPECT_FALSE(IsSeen(shape, {}));
    EXPECT_TRUE(IsSeen(shape, {.dropped_barrier = GpuFaults::kAll}));
    for (const int n : {0, 1}) EXPECT_TRUE(IsSeen(shape, {.dropped_barrier = n})) << n;
  }
}

// The order of threads is random: what depends on it would differ now and then.
TEST(GpuMatmulTest, NoOrderOfThreadsMatters) {
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(IsSeen({.format = WeightFormat::kSuperU4Min, .n_in = 1280, .n_rows = 3}, {}));
}

}  // namespace
}  // namespace longspec::kernels::testing
