// SPDX-License-Identifier: Apache-2.0
//
// A table that breaks the law on purpose: its products differ in the last bit when a call has more than one
// row, as a kernel with another summation order for batches would. The checks of the kernel tests must catch
// it.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::testing {

KernelTable RowDependentTable();

}  // namespace longspec::kernels::testing
