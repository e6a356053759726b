// SPDX-License-Identifier: Apache-2.0
//
// The AVX-512 (F, BW, DQ, VL, VNNI) functions, gathered into kAvx512Table. Included by avx512_*.cc only,
// which are built with those instructions; nothing here may be inline. With LONGSPEC_EMULATE_AVX512 the same
// files make kEmulatedAvx512Table, for tests.
#pragma once

#include "kernels/ops.h"

#ifdef LONGSPEC_EMULATE_AVX512
#define LONGSPEC_AVX512_NAMESPACE emulated_avx512
#define LONGSPEC_AVX512_TABLE kEmulatedAvx512Table
#define LONGSPEC_AVX512_NAME "avx512 (emulated)"
#else
#define LONGSPEC_AVX512_NAMESPACE avx512
#define LONGSPEC_AVX512_TABLE kAvx512Table
#define LONGSPEC_AVX512_NAME "avx512"
#endif

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {

#include "kernels/functions.inc"

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
