// SPDX-License-Identifier: Apache-2.0
//
// The most multiply-adds an instruction set can do, for measuring how near the kernels come. Each function
// does `rounds` rounds of independent multiply-adds from registers and returns how many those were; the time
// is the caller's to take. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace longspec::kernels {

struct PeakLoops {
  int64_t (*q8)(int64_t rounds);    // 8-bit integers, summed as the q8 products need them: without saturating
  int64_t (*f32)(int64_t rounds);   // fused, single precision
  int64_t (*bf16)(int64_t rounds);  // arithmetic "bf16": f32, where there is nothing faster for it
  int64_t (*bf16_amx)(int64_t rounds);  // "bf16-amx", likewise
};

// Those of the instruction set that a table uses.
PeakLoops PeakLoopsOf(const KernelTable& table);

}  // namespace longspec::kernels
