// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/row_dependent_table.h"

#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/tables.h"

namespace longspec::kernels::testing {
namespace {

template <typename Args>
void NudgeBatches(const Args& a) {
  if (a.n_rows == 1) return;
  float& y = a.y[(a.n_rows - 1) * a.y_stride + int64_t{a.group_begin} * kRowGroup];
  y = std::nextafter(y, std::numeric_limits<float>::infinity());
}

void MatmulQ8(const MatmulQ8Args& a) {
  reference::MatmulQ8(a);
  NudgeBatches(a);
}

void MatmulQ8K(const MatmulQ8KArgs& a) {
  reference::MatmulQ8K(a);
  NudgeBatches(a);
}

void MatmulFloat(const MatmulFloatArgs& a) {
  reference::MatmulFloat(a);
  NudgeBatches(a);
}

void MatmulBf16(const MatmulBf16Args& a) {
  reference::MatmulBf16(a);
  NudgeBatches(a);
}

}  // namespace

KernelTable RowDependentTable() {
  KernelTable table = kReferenceTable;
  table.name = "row-dependent";
  table.matmul_q8 = MatmulQ8;
  table.matmul_q8k = MatmulQ8K;
  table.matmul_float = MatmulFloat;
  table.matmul_bf16 = MatmulBf16;
  return table;
}

}  // namespace longspec::kernels::testing
