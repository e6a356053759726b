// SPDX-License-Identifier: Apache-2.0
//
// Encoding of f32 rows to the stored types by plain rounding to nearest, block by block: for models made by
// tests and tools. It does not search for the scales of least error as model publishers' quantisers do. Every
// type that DequantizeRow reads can be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace longspec {

// Encodes n f32 of src into dst (RowBytes(dtype, n) bytes, any alignment). What a quantised block decodes to
// that had a number in it that is not finite is left open. REQUIRES: CanDequantize(dtype); n a multiple of
// the type's block_elements.
void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* dst);

// The bytes of all rows of `tensor` in another type. REQUIRES: CanDequantize of both types; rows as above.
std::vector<std::byte> QuantizeTensor(const TensorView& tensor, DType dtype);

}  // namespace longspec
