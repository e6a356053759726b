// SPDX-License-Identifier: Apache-2.0
//
// The AArch64 functions (Advanced SIMD with dot products), gathered into kNeonTable. Included by neon_*.cc
// only, which are built with those instructions; nothing here may be inline.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::neon {

#include "kernels/functions.inc"

}  // namespace longspec::kernels::neon
