// SPDX-License-Identifier: Apache-2.0
#include "tensor/dequantize.h"

#include "base/check.h"

namespace longspec {

bool CanDequantize(DType dtype) { return Info(dtype).decode != nullptr; }

void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* dst) {
  const WeightTypeInfo& info = Info(dtype);
  LS_CHECK(info.decode != nullptr && n >= 0 && n % info.block_elements == 0);
  if (n > 0) info.decode(src, n, dst);
}

}  // namespace longspec
