// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/dequantize.h"

namespace longspec::kernels {
namespace {

bool IsU4(WeightFormat f) { return f == WeightFormat::kU4 || f == WeightFormat::kU4Min; }
bool HasMin(WeightFormat f) { return f == WeightFormat::kU4Min || f == WeightFormat::kS8Min; }

size_t GroupBytes(WeightFormat format, int64_t n_in) {
  const auto n = static_cast<size_t>(n_in);
  size_t bytes = 0;
  if (IsQuantized(format)) {
    const size_t n_block = n / kQuantBlock;
    bytes = n_block * ((IsU4(format) ? 256 : 512) + (HasMin(format) ? 64 : 32));
  } else {
    bytes = n * kRowGroup * (format == WeightFormat::kF32 ? 4 : 2);
  }
  return (bytes + 63) / 64 * 64;
}

// One stored block of 32 values, taken apart: unsigned quants (as packed), and the f16 bits of scale and minimum.
struct Block {
  uint8_t quants[kQuantBlock];  // nibbles for U4; w + 128 for S8
  uint16_t scale;
  uint16_t minimum;
};

uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Element i of a 4- or 5-bit block: its nibble, and with `high`, the fifth bit from the 32-bit mask.
uint8_t Nibble(const std::byte* nibbles, int i) {
  const auto byte = std::to_integer<uint8_t>(nibbles[i % 16]);
  return i < 16 ? byte & 15 : byte >> 4;
}

Block TakeApart(DType dtype, const std::byte* p) {
  Block block{};
  block.scale = LoadU16(p);
  uint32_t high = 0;
  switch (dtype) {
    case DType::kQ4_0:
      for (int i = 0; i < kQuantBlock; ++i) block.quants[i] = Nibble(p + 2, i);
      break;
    case DType::kQ4_1:
      block.minimum = LoadU16(p + 2);
      for (int i = 0; i < kQuantBlock; ++i) block.quants[i] = Nibble(p + 4, i);
      break;
    case DType::kQ5_0:  // w = value - 16
      std::memcpy(&high, p + 2, sizeof(high));
      for (int i = 0; i < kQuantBlock; ++i) {
        block.quants[i] = static_cast<uint8_t>((Nibble(p + 6, i) | ((high >> i & 1) << 4)) - 16 + 128);
      }
      break;
    case DType::kQ5_1:  // w = value
      block.minimum = LoadU16(p + 2);
      std::memcpy(&high, p + 4, sizeof(high));
      for (int i = 0; i < kQuantBlock; ++i) {
        block.quants[i] = static_cast<uint8_t>((Nibble(p + 8, i) | ((high >> i & 1) << 4)) + 128);
      }
      break;
    default:  // kQ8_0
      for (int i = 0; i < kQuantBlock; ++i) {
        block.quants[i] = static_cast<uint8_t>(std::to_integer<uint8_t>(p[2 + i]) + 128);
      }
      break;
  }
  return block;
}

void PackQuantizedRow(const TensorView& t, WeightFormat format, int64_t row, std::byte* group) {
  const int64_t n_block = t.shape[0] / kQuantBlock;
  const size_t block_bytes = IsU4(format) ? 256 : 512;
  const auto lane = static_cast<size_t>(row % kRowGroup);
  std::byte* scales = group + static_cast<size_t>(n_block) * block_bytes;
  std::byte* minima = scales + static_cast<size_t>(n_block) * kRowGroup * 2;
  const std::byte* src = t.row(row);
  const auto stored_bytes = static_cast<size_t>(Info(t.dtype).block_bytes);
  for (int64_t b = 0; b < n_block; ++b, src += stored_bytes) {
    const Block block = TakeApart(t.dtype, src);
    std::byte* out = group + static_cast<size_t>(b) * block_bytes + 4 * lane;
    for (size_t k = 0; k < (IsU4(format) ? 16 : 32); ++k) {
      const int value = IsU4(format) ? block.quants[k] | block.quants[k + 16] << 4 : block.quants[k];
      out[64 * (k / 4) + k % 4] = static_cast<std::byte>(value);
    }
    const size_t at = (static_cast<size_t>(b) * kRowGroup + lane) * 2;
    std::memcpy(scales + at, &block.scale, 2);
    if (HasMin(format)) std::memcpy(minima + at, &block.minimum, 2);
  }
}

void PackFloatRow(const TensorView& t, WeightFormat format, int64_t row, std::byte* group) {
  const auto lane = static_cast<size_t>(row % kRowGroup);
  const auto n_in = static_cast<size_t>(t.shape[0]);
  if (format != WeightFormat::kF32) {
    const std::byte* src = t.row(row);
    for (size_t k = 0; k < n_in; ++k) std::memcpy(group + (k * kRowGroup + lane) * 2, src + k * 2, 2);
    return;
  }
  std::vector<float> values(n_in);
  DequantizeRow(t.dtype, t.row(row), t.shape[0], values.data());
  for (size_t k = 0; k < n_in; ++k) std::memcpy(group + (k * kRowGroup + lane) * 4, &values[k], 4);
}

}  // namespace

bool IsQuantized(WeightFormat format) {
  return format == WeightFormat::kU4 || format == WeightFormat::kU4Min || format == WeightFormat::kS8 ||
         format == WeightFormat::kS8Min;
}

const char* ArithmeticName(WeightFormat format) { return IsQuantized(format) ? "q8" : "f32"; }

WeightFormat PackedFormat(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return WeightFormat::kU4;
    case DType::kQ4_1: return WeightFormat::kU4Min;
    case DType::kQ5_0:
    case DType::kQ8_0: return WeightFormat::kS8;
    case DType::kQ5_1: return WeightFormat::kS8Min;
    case DType::kF16: return WeightFormat::kF16;
    case DType::kBF16: return WeightFormat::kBF16;
    default: LS_CHECK(CanDequantize(dtype)); return WeightFormat::kF32;
  }
}

uint64_t PackedBytes(DType dtype, int64_t n_in, int64_t n_out) {
  const auto groups = static_cast<uint64_t>((n_out + kRowGroup - 1) / kRowGroup);
  return groups * GroupBytes(PackedFormat(dtype), n_in);
}

PackedWeights::PackedWeights(const TensorView& tensor)
    : PackedWeights(tensor, nullptr) {
  buffer_ = AlignedBuffer(static_cast<size_t>(n_groups()) * matrix_.group_bytes);
  matrix_.data = data_ = buffer_.data();
}

PackedWeights::PackedWeights(const TensorView& tensor, std::byte* memory) : data_(memory) {
  matrix_.format = PackedFormat(tensor.dtype);
  matrix_.n_in = tensor.shape[0];
  matrix_.n_out = tensor.n_rows();
  matrix_.group_bytes = GroupBytes(matrix_.format, matrix_.n_in);
  matrix_.data = memory;
}

void PackedWeights::Pack(const TensorView& tensor, int group_begin, int group_end) {
  for (int group = group_begin; group < group_end; ++group) {
    std::byte* out = data_ + static_cast<size_t>(group) * matrix_.group_bytes;
    const int64_t first = int64_t{group} * kRowGroup;
    for (int64_t row = first; row < first + kRowGroup && row < matrix_.n_out; ++row) {
      if (IsQuantized(matrix_.format)) {
        PackQuantizedRow(tensor, matrix_.format, row, out);
      } else {
        PackFloatRow(tensor, matrix_.format, row, out);
      }
    }
  }
}

}  // namespace longspec::kernels
