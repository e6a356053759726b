// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_format.h"

#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace longspec::kernels {
namespace {

template <typename T>
T Read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The integer in a code; `high` chooses the nibble.
int Quant(KvType type, const std::byte* code, bool high) {
  if (type != KvType::kQ4_0) return Read<int8_t>(code);
  const auto pair = Read<uint8_t>(code);
  return (high ? pair >> 4 : pair & 0xF) - 8;
}

float Float(KvType type, const std::byte* code) {
  if (type == KvType::kF32) return Read<float>(code);
  const auto bits = Read<uint16_t>(code);
  return type == KvType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

}  // namespace

float KeyElement(KvType type, int head_dim, const std::byte* keys, int offset, int d) {
  const KvFormat format = FormatOf(type, head_dim);
  const auto lane = static_cast<size_t>(offset % kKeyGroup), at = static_cast<size_t>(d);
  const std::byte* block = keys + static_cast<size_t>(offset / kKeyGroup) * kKeyGroup * format.bytes();
  const auto code = [&](size_t i) { return block + (i * kKeyGroup + lane) * format.code_bytes; };
  if (!IsQuantized(type)) return Float(type, code(at));
  const std::byte* scales = block + kKeyGroup * format.codes_bytes();
  const float scale = HalfToFloat(Read<uint16_t>(scales + (at / kQuantBlock * kKeyGroup + lane) * 2));
  const size_t together = at % format.code_bytes;  // values of a code before this one
  const int q =
      Quant(type, code(type == KvType::kQ4_0 ? at / 2 : at / format.code_bytes) + together, at % 2 == 1);
  return static_cast<float>(q) * scale;
}

float ValueElement(KvType type, int head_dim, const std::byte* row, int d) {
  const KvFormat format = FormatOf(type, head_dim);
  const auto at = static_cast<size_t>(d), block = at / kQuantBlock, i = at % kQuantBlock;
  if (!IsQuantized(type)) return Float(type, row + at * format.code_bytes);
  const float scale = HalfToFloat(Read<uint16_t>(row + format.codes_bytes() + 2 * block));
  const std::byte* code = row + (type == KvType::kQ4_0 ? block * 16 + i % 16 : at);
  return static_cast<float>(Quant(type, code, i >= 16)) * scale;
}

}  // namespace longspec::kernels
