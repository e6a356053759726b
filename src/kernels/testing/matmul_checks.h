// SPDX-License-Identifier: Apache-2.0
//
// The two halves of the law for matrix products, as checks that a test can also point at a wrong table.
#pragma once

#include <cstdint>

#include "gtest/gtest.h"
#include "kernels/ops.h"
#include "kernels/testing/data.h"

namespace longspec::kernels::testing {

struct MatmulShape {
  WeightFormat format = WeightFormat::kU4;
  int64_t n_in = 32, n_out = 16;  // n_in is rounded up to super-blocks for formats that have them
  int n_rows = 1;
  Fill fill = Fill::kRandom;
  bool add = false;
};

// `table` writes the reference's bits for groups [group_begin, group_end), and nothing else.
::testing::AssertionResult MatmulSameAsReference(const KernelTable& table, const MatmulShape& shape,
                                                 int group_begin, int group_end);

// Every row of one call over all groups has the bits of a call of its own, group by group.
::testing::AssertionResult MatmulRowsIndependent(const KernelTable& table, const MatmulShape& shape);

}  // namespace longspec::kernels::testing
