// SPDX-License-Identifier: Apache-2.0
//
// The tables that exist in this build. What a CPU can run is dispatch.h's question.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels {

extern const KernelTable kReferenceTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table;    // AVX2, FMA, F16C
#endif

}  // namespace longspec::kernels
