// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace longspec {

namespace {

// In the order of DType.
constexpr DTypeInfo kInfo[] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"Q8_0", 32, 34},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"I8", 1, 1},
    {"I16", 1, 2},      {"I32", 1, 4},      {"I64", 1, 8},      {"F64", 1, 8},
};
static_assert(std::size(kInfo) == static_cast<size_t>(DType::kF64) + 1);

char ToUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

const DTypeInfo& Info(DType dtype) { return kInfo[static_cast<int>(dtype)]; }

std::optional<DType> FindDType(std::string_view name) {
  for (size_t i = 0; i < std::size(kInfo); ++i) {
    if (std::ranges::equal(name, kInfo[i].name, {}, ToUpper)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

size_t RowBytes(DType dtype, int64_t n) {
  const DTypeInfo& info = Info(dtype);
  LS_CHECK(n >= 0 && n % info.block_elements == 0);
  return static_cast<size_t>(n / info.block_elements) * static_cast<size_t>(info.block_bytes);
}

}  // namespace longspec
