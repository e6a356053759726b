// SPDX-License-Identifier: Apache-2.0
//
// The tables that exist in this build. What a CPU can run is dispatch.h's question.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels {

extern const KernelTable kReferenceTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table;        // AVX2, FMA, F16C
extern const KernelTable kAvx512Table;      // the same, and AVX-512 F, BW, DQ, VL, VNNI
extern const KernelTable kAvx512Bf16Table;  // the same, and AVX-512 BF16
extern const KernelTable kAmxTable;         // the same, and AMX (TILE, BF16)
#elif defined(__aarch64__)
extern const KernelTable kNeonTable;  // Advanced SIMD with dot products (ARMv8.2 and later)
#endif

}  // namespace longspec::kernels
