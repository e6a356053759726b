// SPDX-License-Identifier: Apache-2.0
//
// Exact decoding of stored rows to f32: the definition of what each quantised type means.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace longspec {

// True for the types DequantizeRow knows: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K.
bool CanDequantize(DType dtype);

// Decodes n elements at `src` (any alignment) into dst (n) f32.
// REQUIRES: CanDequantize(dtype); n a multiple of the type's block_elements.
void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* dst);

}  // namespace longspec
