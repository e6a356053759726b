// SPDX-License-Identifier: Apache-2.0
//
// The loops of peak.h, of each instruction set. Nothing here may be inline.
#pragma once

#include <cstdint>

namespace longspec::kernels::avx2 {
int64_t PeakQ8(int64_t rounds);
int64_t PeakF32(int64_t rounds);
}  // namespace longspec::kernels::avx2

namespace longspec::kernels::avx512 {
int64_t PeakQ8(int64_t rounds);
int64_t PeakF32(int64_t rounds);
}  // namespace longspec::kernels::avx512

namespace longspec::kernels::avx512_bf16 {
int64_t PeakBf16(int64_t rounds);
}  // namespace longspec::kernels::avx512_bf16

namespace longspec::kernels::amx {
int64_t PeakBf16Amx(int64_t rounds);
}  // namespace longspec::kernels::amx

namespace longspec::kernels::neon {
int64_t PeakQ8(int64_t rounds);
int64_t PeakF32(int64_t rounds);
}  // namespace longspec::kernels::neon
