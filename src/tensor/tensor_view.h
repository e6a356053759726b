// SPDX-License-Identifier: Apache-2.0
//
// A named, read-only view of stored tensor bytes. Whoever made it (a mapped file, a buffer) owns the bytes
// and must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace longspec {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  int n_dims = 0;
  int64_t shape[4] = {1, 1, 1, 1};  // shape[0] varies fastest (GGUF's order): a matrix is (n_in, n_out)
  const std::byte* data = nullptr;
  size_t n_bytes = 0;

  int64_t n_elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  int64_t n_rows() const { return shape[1] * shape[2] * shape[3]; }
  // Bytes of row r (a row has shape[0] elements).
  const std::byte* row(int64_t r) const { return data + static_cast<size_t>(r) * RowBytes(dtype, shape[0]); }
};

}  // namespace longspec
