// SPDX-License-Identifier: Apache-2.0
//
// The matrix products of kernels/gpu/table.h.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::gpu {

template <typename Device>
void SetMatmuls(KernelTable&) {}

}  // namespace longspec::kernels::gpu
