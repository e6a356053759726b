// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/dequantize.h"
#include "tensor/quant_blocks.h"

namespace longspec::kernels {
namespace {

size_t BlockBytes(WeightFormat format) { return IsU4(format) ? 256 : 512; }

// What follows a group's quants.
size_t ScaleBytes(WeightFormat format, size_t n_block) {
  const size_t numbers = kRowGroup * 2 * (HasMinima(format) ? 2 : 1);  // of one block or super-block
  if (!HasSuperBlocks(format)) return n_block * numbers;
  return (n_block + 7) / 8 * numbers + n_block * kRowGroup * 2;  // two 8-bit factors a block in every format
}

size_t GroupBytes(WeightFormat format, int64_t n_in) {
  const auto n = static_cast<size_t>(n_in);
  size_t bytes = 0;
  if (IsQuantized(format)) {
    const size_t n_block = n / kQuantBlock;
    bytes = n_block * BlockBytes(format) + ScaleBytes(format, n_block);
  } else {
    bytes = n * kRowGroup * (format == WeightFormat::kF32 ? 4 : 2);
  }
  return (bytes + 63) / 64 * 64;
}

// One stored block of 32 values, taken apart: unsigned quants (as packed), and the f16 bits of scale and
// minimum.
struct Block {
  uint8_t quants[kQuantBlock];  // as packed: nibbles for U4; w + 128 for S8
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

// One lane's part of a block: `out` is the block's first byte of that lane.
void PutQuants(WeightFormat format, const uint8_t (&quants)[kQuantBlock], std::byte* out) {
  for (size_t k = 0; k < (IsU4(format) ? 16 : 32); ++k) {
    const int value = IsU4(format) ? quants[k] | quants[k + 16] << 4 : quants[k];
    out[64 * (k / 4) + k % 4] = static_cast<std::byte>(value);
  }
}

// One stored super-block of 256 values, taken apart.
struct SuperBlock {
  uint8_t quants[8][kQuantBlock];
  uint16_t scale, minimum;  // f16 bits
  uint8_t factors[8][2];    // of the scale: per block, or per half
  uint8_t minimum_factors[8];
};

template <typename Stored>
Stored Load(const std::byte* p) {
  Stored block;
  std::memcpy(&block, p, sizeof(block));
  return block;
}

SuperBlock TakeApartK(const std::byte* p, DType dtype) {
  SuperBlock out{};
  const auto take_scales = [&](const auto& stored) {
    out.scale = stored.d;
    out.minimum = stored.dmin;
    for (int s = 0; s < 8; ++s) {
      const ScaleMin pair = UnpackScaleMin(stored.scales, s);
      out.factors[s][0] = static_cast<uint8_t>(pair.scale);
      out.minimum_factors[s] = static_cast<uint8_t>(pair.min);
    }
  };
  const auto nibble = [](const uint8_t* qs, int s, int i) {
    return qs[32 * (s / 2) + i] >> (4 * (s % 2)) & 15;
  };
  if (dtype == DType::kQ4_K) {
    const auto stored = Load<BlockQ4_K>(p);
    take_scales(stored);
    for (int s = 0; s < 8; ++s) {
      for (int i = 0; i < kQuantBlock; ++i) out.quants[s][i] = static_cast<uint8_t>(nibble(stored.qs, s, i));
    }
  } else if (dtype == DType::kQ5_K) {
    const auto stored = Load<BlockQ5_K>(p);
    take_scales(stored);
    for (int s = 0; s < 8; ++s) {
      for (int i = 0; i < kQuantBlock; ++i) {
        const int w = nibble(stored.qs, s, i) | (stored.qh[i] >> s & 1) << 4;
        out.quants[s][i] = static_cast<uint8_t>(w);
      }
    }
  } else {  // kQ6_K
    const auto stored = Load<BlockQ6_K>(p);
    out.scale = stored.d;
    for (int s = 0; s < 8; ++s) {
      const int half = s / 4, group = s % 4;
      for (int h = 0; h < 2; ++h) out.factors[s][h] = static_cast<uint8_t>(stored.scales[2 * s + h]);
      for (int i = 0; i < kQuantBlock; ++i) {
        const int low = stored.ql[64 * half + 32 * (group % 2) + i] >> (4 * (group / 2)) & 15;
        const int high = stored.qh[32 * half + i] >> (2 * group) & 3;
        out.quants[s][i] = static_cast<uint8_t>(low | high << 4);
      }
    }
  }
  return out;
}

void PackSuperRow(const TensorView& t, WeightFormat format, int64_t row, std::byte* group) {
  const auto n_block = static_cast<size_t>(t.shape[0] / kQuantBlock);
  const size_t n_super = n_block / 8;
  const auto lane = static_cast<size_t>(row % kRowGroup);
  const bool halves = format == WeightFormat::kSuperU6Halves;
  std::byte* scales = group + n_block * BlockBytes(format);
  std::byte* minima = scales + n_super * kRowGroup * 2;
  std::byte* factors = minima + (HasMinima(format) ? n_super * kRowGroup * 2 : 0);
  std::byte* minimum_factors = factors + n_block * kRowGroup;
  const std::byte* src = t.row(row);
  for (size_t super = 0; super < n_super; ++super, src += Info(t.dtype).block_bytes) {
    const SuperBlock stored = TakeApartK(src, t.dtype);
    std::memcpy(scales + (super * kRowGroup + lane) * 2, &stored.scale, 2);
    if (HasMinima(format)) std::memcpy(minima + (super * kRowGroup + lane) * 2, &stored.minimum, 2);
    for (size_t s = 0; s < 8; ++s) {
      const size_t b = 8 * super + s;
      PutQuants(format, stored.quants[s], group + b * BlockBytes(format) + 4 * lane);
      if (halves) {
        for (size_t h = 0; h < 2; ++h) {
          factors[(2 * b + h) * kRowGroup + lane] = static_cast<std::byte>(stored.factors[s][h]);
        }
      } else {
        factors[b * kRowGroup + lane] = static_cast<std::byte>(stored.factors[s][0]);
        minimum_factors[b * kRowGroup + lane] = static_cast<std::byte>(stored.minimum_factors[s]);
      }
    }
  }
}

void PackQuantizedRow(const TensorView& t, WeightFormat format, int64_t row, std::byte* group) {
  const int64_t n_block = t.shape[0] / kQuantBlock;
  const size_t block_bytes = BlockBytes(format);
  const auto lane = static_cast<size_t>(row % kRowGroup);
  std::byte* scales = group + static_cast<size_t>(n_block) * block_bytes;
  std::byte* minima = scales + static_cast<size_t>(n_block) * kRowGroup * 2;
  const std::byte* src = t.row(row);
  const auto stored_bytes = static_cast<size_t>(Info(t.dtype).block_bytes);
  for (int64_t b = 0; b < n_block; ++b, src += stored_bytes) {
    const Block block = TakeApart(t.dtype, src);
    PutQuants(format, block.quants, group + static_cast<size_t>(b) * block_bytes + 4 * lane);
    const size_t at = (static_cast<size_t>(b) * kRowGroup + lane) * 2;
    std::memcpy(scales + at, &block.scale, 2);
    if (HasMinima(format)) std::memcpy(minima + at, &block.minimum, 2);
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

bool IsU4(WeightFormat f) {
  return f == WeightFormat::kU4 || f == WeightFormat::kU4Min || f == WeightFormat::kSuperU4Min;
}

bool HasMinima(WeightFormat f) {
  return f == WeightFormat::kU4Min || f == WeightFormat::kS8Min || f == WeightFormat::kSuperU4Min ||
         f == WeightFormat::kSuperU5Min;
}

bool IsQuantized(WeightFormat format) { return format < WeightFormat::kF32; }

bool HasSuperBlocks(WeightFormat format) {
  return format >= WeightFormat::kSuperU4Min && format <= WeightFormat::kSuperU6Halves;
}

bool IsInBf16(WeightFormat format) {
  return format == WeightFormat::kBF16Pairs || format == WeightFormat::kBF16Amx;
}

const char* ArithmeticName(WeightFormat format) {
  if (IsInBf16(format)) return format == WeightFormat::kBF16Pairs ? "bf16" : "bf16-amx";
  if (HasSuperBlocks(format)) return "q8k";
  return IsQuantized(format) ? "q8" : "f32";
}

WeightFormat PackedFormat(DType dtype, WeightFormat of_bf16) {
  switch (dtype) {
    case DType::kQ4_0:
      return WeightFormat::kU4;
    case DType::kQ4_1:
      return WeightFormat::kU4Min;
    case DType::kQ5_0:
    case DType::kQ8_0:
      return WeightFormat::kS8;
    case DType::kQ5_1:
      return WeightFormat::kS8Min;
    case DType::kQ4_K:
      return WeightFormat::kSuperU4Min;
    case DType::kQ5_K:
      return WeightFormat::kSuperU5Min;
    case DType::kQ6_K:
      return WeightFormat::kSuperU6Halves;
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return of_bf16;
    default:
      LS_CHECK(CanDequantize(dtype));
      return WeightFormat::kF32;
  }
}

uint64_t PackedBytes(DType dtype, int64_t n_in, int64_t n_out) {
  const auto groups = static_cast<uint64_t>((n_out + kRowGroup - 1) / kRowGroup);
  return groups * GroupBytes(PackedFormat(dtype), n_in);
}

PackedMatrix InF32(PackedMatrix matrix) {
  if (IsInBf16(matrix.format)) matrix.format = WeightFormat::kBF16;
  return matrix;
}

PackedWeights::PackedWeights(const TensorView& tensor) : PackedWeights(tensor, nullptr) {
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

PackedWeights PackedWeights::Packed(const TensorView& tensor, const std::byte* packed) {
  PackedWeights weights(tensor, nullptr);
  weights.matrix_.data = packed;
  return weights;
}

void PackedWeights::MultiplyBf16As(WeightFormat format) {
  if (matrix_.format == WeightFormat::kBF16) matrix_.format = format;
}

void PackedWeights::Pack(const TensorView& tensor, int group_begin, int group_end) {
  for (int group = group_begin; group < group_end; ++group) {
    std::byte* out = data_ + static_cast<size_t>(group) * matrix_.group_bytes;
    const int64_t first = int64_t{group} * kRowGroup;
    for (int64_t row = first; row < first + kRowGroup && row < matrix_.n_out; ++row) {
      if (HasSuperBlocks(matrix_.format)) {
        PackSuperRow(tensor, matrix_.format, row, out);
      } else if (IsQuantized(matrix_.format)) {
        PackQuantizedRow(tensor, matrix_.format, row, out);
      } else {
        PackFloatRow(tensor, matrix_.format, row, out);
      }
    }
  }
}

}  // namespace longspec::kernels
