// SPDX-License-Identifier: Apache-2.0
//
// Element types of stored tensors, one record each: whatever the program knows of a type is in its line of
// the table in weight_types.cc. A quantised type stores `block_elements` values of one row in `block_bytes`
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/weight_format.h"

namespace longspec {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kMXFP4,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kIQ4_NL,
  kQ3_K,
  kIQ4_XS,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
};

struct StoredBlock;

struct WeightTypeInfo {
  std::string_view name;  // as GGUF tools print it: "Q4_1"
  int block_elements;
  int block_bytes;
  uint32_t gguf_number;                // of the type of a tensor
  uint32_t file_type = 0;              // general.file_type of files whose matrices are of it
  std::optional<WeightFormat> packed;  // how its matrices are packed; nothing: weights cannot have it
  // Exact values of n elements, and the nearest that can be stored (tensor/dequantize.h, quantize.h). Null
  // where `packed` is nothing.
  void (*decode)(const std::byte* src, int64_t n, float* dst) = nullptr;
  void (*encode)(const float* src, int64_t n, std::byte* dst) = nullptr;
  // One block as integers, of quantised types.
  void (*take_apart)(const std::byte* src, StoredBlock* block) = nullptr;
};

const WeightTypeInfo& Info(DType dtype);

// The type of that name, in any case ("q4_1").
std::optional<DType> FindDType(std::string_view name);
// The type with that number in GGUF files.
std::optional<DType> FindGgufType(uint32_t number);
// The type whose files have that general.file_type.
std::optional<DType> FindFileType(uint64_t file_type);

// Types of weights in blocks of at most `most_elements`, the largest first: "q8_0, q5_1".
std::string WeightTypeNames(int most_elements);

// Bytes of one row of n elements. REQUIRES: n is a multiple of the type's block_elements.
size_t RowBytes(DType dtype, int64_t n);

}  // namespace longspec
