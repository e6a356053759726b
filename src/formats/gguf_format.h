// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the GGUF format, shared by its reader and its writer. All of a file is little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace longspec {

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kGgufVersion = 3;         // v2 differs in nothing that a little-endian reader sees
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr uint64_t kGgufMinAlignment = 8;
inline constexpr uint64_t kGgufMaxAlignment = 1 << 20;
inline constexpr uint64_t kGgufMaxTensorName = 64;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// A tensor type number of ggml: its name, and the DType where longspec has one.
struct GgmlType {
  std::string_view name;
  std::optional<DType> dtype;
};

// Null for numbers that ggml never used or has withdrawn.
const GgmlType* FindGgmlType(uint32_t number);
uint32_t GgmlTypeNumber(DType dtype);

// `text` in single quotes for a one-line message: other than printable ASCII is escaped, length is bounded.
std::string Quote(std::string_view text);

}  // namespace longspec
