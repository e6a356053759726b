// SPDX-License-Identifier: Apache-2.0
#include "tensor/weight_types.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "base/check.h"
#include "tensor/half.h"

namespace longspec {
namespace {

void LoadFloats(const std::byte* src, int64_t n, float* dst) {
  std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

void StoreFloats(const float* src, int64_t n, std::byte* dst) {
  std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

template <float (*kConvert)(uint16_t)>
void DecodeHalves(const std::byte* src, int64_t n, float* dst) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t value;
    std::memcpy(&value, src + 2 * i, sizeof value);
    dst[i] = kConvert(value);
  }
}

template <uint16_t (*kConvert)(float)>
void EncodeHalves(const float* src, int64_t n, std::byte* dst) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t value = kConvert(src[i]);
    std::memcpy(dst + 2 * i, &value, sizeof value);
  }
}

constexpr WeightTypeInfo kF32Type = {.name = "F32",
                                     .block_elements = 1,
                                     .block_bytes = 4,
                                     .gguf_number = 0,
                                     .file_type = 0,
                                     .packed = WeightFormat::kF32,
                                     .decode = LoadFloats,
                                     .encode = StoreFloats};
constexpr WeightTypeInfo kF16Type = {.name = "F16",
                                     .block_elements = 1,
                                     .block_bytes = 2,
                                     .gguf_number = 1,
                                     .file_type = 1,
                                     .packed = WeightFormat::kF16,
                                     .decode = DecodeHalves<HalfToFloat>,
                                     .encode = EncodeHalves<FloatToHalf>};
constexpr WeightTypeInfo kBF16Type = {.name = "BF16",
                                      .block_elements = 1,
                                      .block_bytes = 2,
                                      .gguf_number = 30,
                                      .file_type = 32,
                                      .packed = WeightFormat::kBF16,
                                      .decode = DecodeHalves<BFloat16ToFloat>,
                                      .encode = EncodeHalves<FloatToBFloat16>};
// Types of numbers that are no weights.
constexpr WeightTypeInfo kI8Type = {.name = "I8", .block_elements = 1, .block_bytes = 1, .gguf_number = 24};
constexpr WeightTypeInfo kI16Type = {.name = "I16", .block_elements = 1, .block_bytes = 2, .gguf_number = 25};
constexpr WeightTypeInfo kI32Type = {.name = "I32", .block_elements = 1, .block_bytes = 4, .gguf_number = 26};
constexpr WeightTypeInfo kI64Type = {.name = "I64", .block_elements = 1, .block_bytes = 8, .gguf_number = 27};
constexpr WeightTypeInfo kF64Type = {.name = "F64", .block_elements = 1, .block_bytes = 8, .gguf_number = 28};

// In the order of DType.
constexpr const WeightTypeInfo* kTypes[] = {
    &kF32Type,  &kF16Type,  &kBF16Type,   &kMXFP4Type, &kQ4_0Type,   &kQ4_1Type, &kQ5_0Type,
    &kQ5_1Type, &kQ8_0Type, &kIQ4_NLType, &kQ3_KType,  &kIQ4_XSType, &kQ4_KType, &kQ5_KType,
    &kQ6_KType, &kI8Type,   &kI16Type,    &kI32Type,   &kI64Type,    &kF64Type,
};
static_assert(std::size(kTypes) == static_cast<size_t>(DType::kF64) + 1);

char ToUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

template <typename F>
std::optional<DType> First(const F& fits) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (fits(*kTypes[i])) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace

const WeightTypeInfo& Info(DType dtype) { return *kTypes[static_cast<size_t>(dtype)]; }

std::optional<DType> FindDType(std::string_view name) {
  return First([&](const WeightTypeInfo& type) { return std::ranges::equal(name, type.name, {}, ToUpper); });
}

std::optional<DType> FindGgufType(uint32_t number) {
  return First([&](const WeightTypeInfo& type) { return type.gguf_number == number; });
}

std::optional<DType> FindFileType(uint64_t file_type) {
  return First([&](const WeightTypeInfo& type) { return type.packed && type.file_type == file_type; });
}

std::string WeightTypeNames(int most_elements) {
  std::string names;
  for (size_t i = std::size(kTypes); i-- > 0;) {
    const WeightTypeInfo& type = *kTypes[i];
    if (!type.packed || type.block_elements > most_elements) continue;
    if (!names.empty()) names += ", ";
    std::ranges::transform(type.name, std::back_inserter(names), ToLower);
  }
  return names;
}

size_t RowBytes(DType dtype, int64_t n) {
  const WeightTypeInfo& info = Info(dtype);
  LS_CHECK(n >= 0 && n % info.block_elements == 0);
  return static_cast<size_t>(n / info.block_elements) * static_cast<size_t>(info.block_bytes);
}

}  // namespace longspec
