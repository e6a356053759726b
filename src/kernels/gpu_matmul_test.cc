// SPDX-License-Identifier: Apache-2.0
//
// What is left out of a GPU's products on purpose is seen. That they are right the suites of every table
// show.
#include "kernels/testing/emulated_gpu_table.h"
#include "kernels/testing/fiber_device.h"
#include "kernels/testing/matmul_checks.h"
#include "kernels/testing/sanitizers.h"

namespace longspec::kernels::testing {
namespace {

using gpu::ProductBody;

bool IsSeen(const MatmulShape& shape, const GpuFaults& faults, ProductBody body = ProductBody::kFewRows) {
  gpu_faults = faults;
  const bool seen = !MatmulSameAsReference(EmulatedProducts(body), shape, 0, 1);
  gpu_faults = {};
  return seen;
}

TEST(GpuMatmulTest, EveryBarrierOfFewRowsIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer would find it";
  // More units than are summed between two barriers.
  for (const MatmulShape& shape :
       {MatmulShape{.format = WeightFormat::kU4Min, .n_in = 1024, .n_rows = 5},
        MatmulShape{.format = WeightFormat::kSuperU6Halves, .n_in = 4608, .n_rows = 9}}) {
    EXPECT_FALSE(IsSeen(shape, {}));
    EXPECT_TRUE(IsSeen(shape, {.dropped_barrier = GpuFaults::kAll}));
    for (const int n : {0, 1}) EXPECT_TRUE(IsSeen(shape, {.dropped_barrier = n})) << n;
  }
}

TEST(GpuMatmulTest, EveryBarrierOfManyRowsIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer would find it";
  for (const WeightFormat format : {WeightFormat::kU5Min, WeightFormat::kSuperU5Min}) {
    const MatmulShape shape = {.format = format, .n_in = 1024, .n_rows = 40};
    EXPECT_FALSE(IsSeen(shape, {}, ProductBody::kManyRows));
    for (int n = 0; n < 4; ++n)
      EXPECT_TRUE(IsSeen(shape, {.dropped_barrier = n}, ProductBody::kManyRows)) << n;
    EXPECT_TRUE(IsSeen(shape, {.dropped_waits = true}, ProductBody::kManyRows));
  }
}

TEST(GpuMatmulTest, EveryBodyIsTheReference) {
  for (const ProductBody body :
       {ProductBody::kFewRows, ProductBody::kMoreRows, ProductBody::kManyRows, ProductBody::kManyRowsSmall}) {
    const KernelTable table = EmulatedProducts(body);
    for (const WeightFormat format : kQuantizedFormats) {
      for (const int n_rows : {1, 31, 70}) {
        const MatmulShape shape = {
            .format = format, .n_in = 288, .n_out = 87, .n_rows = n_rows, .add = n_rows == 31};
        ASSERT_TRUE(MatmulSameAsReference(table, shape, 0, 6)) << static_cast<int>(body);
        ASSERT_TRUE(MatmulSameAsReference(table, shape, 1, 3)) << static_cast<int>(body);
      }
      MatmulShape largest = {.format = format, .n_in = 512, .n_out = 16, .n_rows = 9, .fill = Fill::kLargest};
      ASSERT_TRUE(MatmulSameAsReference(table, largest, 0, 1)) << static_cast<int>(body);
    }
  }
}

TEST(GpuMatmulTest, StreamedRowsAreTheReferences) {
  const KernelTable table = EmulatedProducts(ProductBody::kStreamedRows);
  for (const WeightFormat format : kQuantizedFormats) {
    for (const int n_rows : {1, 2, 3, 8}) {
      for (const int64_t n_in : {256, 1280, 4864}) {
        const MatmulShape shape = {
            .format = format, .n_in = n_in, .n_out = 39, .n_rows = n_rows, .add = n_rows == 2};
        ASSERT_TRUE(MatmulSameAsReference(table, shape, 0, 3));
      }
    }
    ASSERT_TRUE(
        MatmulSameAsReference(table, {.format = format, .n_in = 288, .n_out = 87, .n_rows = 5}, 1, 3));
  }
  // More groups than blocks of threads.
  ASSERT_TRUE(MatmulSameAsReference(
      table, {.format = WeightFormat::kSuperU4Min, .n_in = 512, .n_out = 16 * 600, .n_rows = 2}, 0, 600));
}

TEST(GpuMatmulTest, EveryWaitOfStreamedRowsIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer would find it";
  for (const WeightFormat format : {WeightFormat::kU4, WeightFormat::kSuperU6Halves}) {
    const MatmulShape shape = {.format = format, .n_in = 4864, .n_rows = 3};
    EXPECT_FALSE(IsSeen(shape, {}, ProductBody::kStreamedRows));
    EXPECT_TRUE(IsSeen(shape, {.dropped_barrier = 0}, ProductBody::kStreamedRows));
    EXPECT_TRUE(IsSeen(shape, {.dropped_waits = true}, ProductBody::kStreamedRows));
  }
}

// The order of threads is random: what depends on it would differ now and then.
TEST(GpuMatmulTest, NoOrderOfThreadsMatters) {
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(IsSeen({.format = WeightFormat::kSuperU4Min, .n_in = 1280, .n_rows = 3}, {}));
}

}  // namespace
}  // namespace longspec::kernels::testing
