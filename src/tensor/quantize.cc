// SPDX-License-Identifier: Apache-2.0
#include "tensor/quantize.h"

#include "base/check.h"
#include "tensor/dequantize.h"

namespace longspec {

void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* dst) {
  const WeightTypeInfo& info = Info(dtype);
  LS_CHECK(info.encode != nullptr && n >= 0 && n % info.block_elements == 0);
  if (n > 0) info.encode(src, n, dst);
}

std::vector<std::byte> QuantizeTensor(const TensorView& tensor, DType dtype) {
  const int64_t n = tensor.shape[0];
  const size_t row_bytes = RowBytes(dtype, n);
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(tensor.n_rows()));
  std::vector<float> row(static_cast<size_t>(n));
  for (int64_t r = 0; r < tensor.n_rows(); ++r) {
    DequantizeRow(tensor.dtype, tensor.row(r), n, row.data());
    QuantizeRow(dtype, row.data(), n, bytes.data() + static_cast<size_t>(r) * row_bytes);
  }
  return bytes;
}

}  // namespace longspec
