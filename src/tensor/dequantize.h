// SPDX-License-Identifier: Apache-2.0
//
// Exact decoding of stored rows to f32: the definition of what each quantised type means.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace longspec {

// True for types that weights may have (tensor/weight_types.cc).
bool CanDequantize(DType dtype);

// Decodes n elements at `src` (any alignment) into dst (n) f32.
// REQUIRES: CanDequantize(dtype); n a multiple of the type's block_elements.
void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* dst);

}  // namespace longspec
