// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the GGUF format, shared by its reader and its writer. All of a file is little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// What GGUF tools call the type of tensors with that number where longspec has none for it (FindGgufType).
// Empty for numbers that were never used or have been withdrawn.
std::string_view OtherGgufType(uint32_t number);

// `text` in single quotes for a one-line message: other than printable ASCII is escaped, length is bounded.
std::string Quote(std::string_view text);

}  // namespace longspec
