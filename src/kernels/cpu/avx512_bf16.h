// SPDX-License-Identifier: Apache-2.0
//
// The functions in which kAvx512Bf16Table differs from kAvx512Table. Nothing here may be inline.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::avx512_bf16 {

void RoundBf16(const float* x, int n, uint16_t* out);
void MatmulBf16(const MatmulBf16Args& a);
void Scores(const ScoresArgs& a);
void Values(const ValuesArgs& a);
void GatheredValues(const GatheredValuesArgs& a);

}  // namespace longspec::kernels::avx512_bf16
