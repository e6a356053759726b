// SPDX-License-Identifier: Apache-2.0
//
// The table "cuda (emulated)": the bodies of kernels/gpu/ on fibers.
#pragma once

#include "kernels/gpu/matmul_table.h"
#include "kernels/ops.h"

namespace longspec::kernels::testing {

extern const KernelTable kEmulatedGpuTable;
// The reference, but for products by one body whatever the rows.
KernelTable EmulatedProducts(gpu::ProductBody body);

}  // namespace longspec::kernels::testing
