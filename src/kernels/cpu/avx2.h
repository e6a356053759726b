// SPDX-License-Identifier: Apache-2.0
//
// The AVX2 + FMA + F16C functions, gathered into kAvx2Table. Included by avx2_*.cc only, which are built with
// those instructions; nothing here may be inline.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::avx2 {

#include "kernels/functions.inc"

}  // namespace longspec::kernels::avx2
