// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_format.h"

#include <iterator>

#include "base/check.h"

namespace longspec {
namespace {

// By type number; withdrawn numbers have no name.
constexpr GgmlType kGgmlTypes[] = {
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"Q4_0", DType::kQ4_0},
    {"Q4_1", DType::kQ4_1},
    {"", {}},
    {"", {}},
    {"Q5_0", DType::kQ5_0},
    {"Q5_1", DType::kQ5_1},
    {"Q8_0", DType::kQ8_0},
    {"Q8_1", {}},
    {"Q2_K", {}},
    {"Q3_K", {}},
    {"Q4_K", DType::kQ4_K},
    {"Q5_K", DType::kQ5_K},
    {"Q6_K", DType::kQ6_K},
    {"Q8_K", {}},
    {"IQ2_XXS", {}},
    {"IQ2_XS", {}},
    {"IQ3_XXS", {}},
    {"IQ1_S", {}},
    {"IQ4_NL", {}},
    {"IQ3_S", {}},
    {"IQ2_S", {}},
    {"IQ4_XS", {}},
    {"I8", DType::kI8},
    {"I16", DType::kI16},
    {"I32", DType::kI32},
    {"I64", DType::kI64},
    {"F64", DType::kF64},
    {"IQ1_M", {}},
    {"BF16", DType::kBF16},
    {"", {}},
    {"", {}},
    {"", {}},
    {"TQ1_0", {}},
    {"TQ2_0", {}},
    {"", {}},
    {"", {}},
    {"", {}},
    {"MXFP4", {}},
};

}  // namespace

const GgmlType* FindGgmlType(uint32_t number) {
  if (number >= std::size(kGgmlTypes) || kGgmlTypes[number].name.empty()) return nullptr;
  return &kGgmlTypes[number];
}

uint32_t GgmlTypeNumber(DType dtype) {
  uint32_t number = 0;
  while (number < std::size(kGgmlTypes) && kGgmlTypes[number].dtype != dtype) ++number;
  LS_CHECK(number < std::size(kGgmlTypes));
  return number;
}

std::string Quote(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      quoted += c;
    } else {
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xF]};
    }
  }
  if (text.size() > kMaxShown) quoted += "...";
  return quoted + "'";
}

}  // namespace longspec
