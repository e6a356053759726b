// SPDX-License-Identifier: Apache-2.0
//
// Element types of stored tensors, and the size of their blocks. A quantised type stores `block_elements`
// values of one row in `block_bytes` bytes (layouts: tensor/quant_blocks.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace longspec {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
};

struct DTypeInfo {
  std::string_view name;  // as GGUF tools print it: "Q4_1"
  int block_elements;
  int block_bytes;
};

const DTypeInfo& Info(DType dtype);

// The type of that name, in any case ("q4_1").
std::optional<DType> FindDType(std::string_view name);

// Bytes of one row of n elements. REQUIRES: n is a multiple of the type's block_elements.
size_t RowBytes(DType dtype, int64_t n);

}  // namespace longspec
