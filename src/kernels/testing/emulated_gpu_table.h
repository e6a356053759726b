// SPDX-License-Identifier: Apache-2.0
//
// The table "cuda (emulated)": the bodies of kernels/gpu/ on fibers.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::testing {

extern const KernelTable kEmulatedGpuTable;

}  // namespace longspec::kernels::testing
