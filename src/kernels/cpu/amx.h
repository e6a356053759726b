// SPDX-License-Identifier: Apache-2.0
//
// The functions in which kAmxTable differs from kAvx512Bf16Table, and what the choice of the table needs to
// know. Nothing here may be inline. With LONGSPEC_EMULATE_AMX the same files make kEmulatedAmxTable, for
// tests: on tiles in memory, and on the CPU's AVX-512 or, with LONGSPEC_EMULATE_AVX512, the emulated one.
#pragma once

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_bf16.h"
#include "kernels/ops.h"

#ifdef LONGSPEC_EMULATE_AMX
#define LONGSPEC_AMX_NAMESPACE emulated_amx
#define LONGSPEC_AMX_TABLE kEmulatedAmxTable
#define LONGSPEC_AMX_NAME "amx (emulated)"
#else
#define LONGSPEC_AMX_NAMESPACE amx
#define LONGSPEC_AMX_TABLE kAmxTable
#define LONGSPEC_AMX_NAME "amx"
#endif

namespace longspec::kernels::LONGSPEC_AMX_NAMESPACE {

// What does all that tiles do not.
#ifdef LONGSPEC_EMULATE_AMX
namespace base = LONGSPEC_AVX512_NAMESPACE;
#else
namespace base = avx512_bf16;
#endif

void MatmulBf16(const MatmulBf16Args& a);
void Scores(const ScoresArgs& a);
void Values(const ValuesArgs& a);
void GatheredValues(const GatheredValuesArgs& a);

// Whether this CPU's tiles sum as arithmetic "bf16-amx" says, on products that tell other orders, roundings
// and flushes apart. Takes some 10 us. REQUIRES: the instructions, and the system's leave to use tiles.
bool TilesSumAsDocumented();

}  // namespace longspec::kernels::LONGSPEC_AMX_NAMESPACE
