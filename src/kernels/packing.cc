// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.h"

#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "tensor/dequantize.h"
#include "tensor/stored_block.h"
#include "tensor/weight_lines.h"

namespace longspec::kernels {
namespace {

// One lane's part of a block: `out` is the block's first byte of that lane. Four weights at a time, which are
// the bytes of a word: what is shifted into a neighbour is masked.
template <int kBits>
void PutQuantsOf(const uint8_t* quants, std::byte* out) {
  uint32_t lines[kBits] = {};
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    uint32_t four;
    std::memcpy(&four, quants + 4 * j, sizeof(four));
    const WeightLine& line = kWeightLines[kBits].of[j];
#pragma GCC unroll 3
    for (int p = 0; p < line.n_parts; ++p) {
      const LinePart& part = line.parts[p];
      const uint32_t mask = ((1U << part.n) - 1) * 0x01010101U;
      lines[part.line] |= (four >> part.to & mask) << part.from;
    }
  }
#pragma GCC unroll 8
  for (int line = 0; line < kBits; ++line) std::memcpy(out + 64 * line, &lines[line], sizeof(lines[line]));
}

using PutQuants = void (*)(const uint8_t* quants, std::byte* out);

PutQuants PutQuantsFor(WeightFormat format) {
  switch (Info(format).bits) {
    case 3:
      return PutQuantsOf<3>;
    case 4:
      return PutQuantsOf<4>;
    case 5:
      return PutQuantsOf<5>;
    case 6:
      return PutQuantsOf<6>;
    default:
      return PutQuantsOf<8>;
  }
}

void PackSuperRow(const TensorView& t, WeightFormat format, int64_t row, std::byte* group) {
  const auto n_block = static_cast<size_t>(t.shape[0] / kQuantBlock);
  const size_t n_super = n_block / 8;
  const auto lane = static_cast<size_t>(row % kRowGroup);
  const bool halves = Info(format).halves, minima_too = Info(format).minima;
  const PutQuants put_quants = PutQuantsFor(format);
  std::byte* scales = group + n_block * BlockBytes(format);
  std::byte* minima = scales + n_super * kRowGroup * 2;
  std::byte* factors = minima + (minima_too ? n_super * kRowGroup * 2 : 0);
  std::byte* minimum_factors = factors + n_block * kRowGroup;
  const std::byte* src = t.row(row);
  for (size_t super = 0; super < n_super; ++super, src += longspec::Info(t.dtype).block_bytes) {
    StoredBlock stored;
    longspec::Info(t.dtype).take_apart(src, &stored);
    std::memcpy(scales + (super * kRowGroup + lane) * 2, &stored.scale, 2);
    if (minima_too) std::memcpy(minima + (super * kRowGroup + lane) * 2, &stored.minimum, 2);
    for (size_t s = 0; s < 8; ++s) {
      const size_t b = 8 * super + s;
      put_quants(stored.quants + kQuantBlock * s, group + b * BlockBytes(format) + 4 * lane);
      if (halves) {
        for (size_t h = 0; h < 2; ++h) {
          factors[(2 * b + h) * kRowGroup + lane] = static_cast<std::byte>(stored.factors[s][h]);
        }
      } else {
        factors[b * kRowGroup + lane] = static_cast<std::byte>(stored.factors[s][0]);
      }
      if (minima_too) {
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
  const auto scale_bytes = static_cast<size_t>(Info(format).scale_bytes);
  std::byte* minima = scales + static_cast<size_t>(n_block) * kRowGroup * scale_bytes;
  const std::byte* src = t.row(row);
  const WeightTypeInfo& type = longspec::Info(t.dtype);
  const PutQuants put_quants = PutQuantsFor(format);
  for (int64_t b = 0; b < n_block; ++b, src += type.block_bytes) {
    StoredBlock block;
    type.take_apart(src, &block);
    put_quants(block.quants, group + static_cast<size_t>(b) * block_bytes + 4 * lane);
    const size_t at = (static_cast<size_t>(b) * kRowGroup + lane) * scale_bytes;
    std::memcpy(scales + at, &block.scale, scale_bytes);  // the lower bytes: little-endian
    if (Info(format).minima) std::memcpy(minima + at, &block.minimum, scale_bytes);
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

const char* ArithmeticName(WeightFormat format) {
  constexpr const char* kNames[] = {"f32", "q8", "q8k", "bf16", "bf16-amx"};  // in the order of Arithmetic
  return kNames[static_cast<size_t>(Info(format).arithmetic)];
}

size_t GroupLayout::bytes() const {
  const auto of = [](const GroupPart& part) { return part.n_cells * part.bytes * kRowGroup; };
  return (of(quants) + of(scales) + of(factors) + 63) / 64 * 64;
}

GroupLayout LayoutOf(WeightFormat format, int64_t n_in) {
  const WeightFormatInfo& info = Info(format);
  const auto n = static_cast<size_t>(n_in);
  if (!IsQuantized(format)) return {.quants = {n, static_cast<size_t>(info.bits) / 8}};
  const size_t n_block = n / kQuantBlock;
  const size_t n_scale = HasSuperBlocks(format) ? n / kSuperBlock : n_block;
  GroupLayout layout;
  layout.quants = {n_block * (BlockBytes(format) / 64), 4};
  layout.scales = {n_scale * (info.minima ? 2 : 1), static_cast<size_t>(info.scale_bytes)};
  if (HasSuperBlocks(format)) layout.factors = {n_block * (info.minima || info.halves ? 2 : 1), 1};
  return layout;
}

WeightFormat PackedFormat(DType dtype, WeightFormat of_bf16) {
  const std::optional<WeightFormat>& packed = longspec::Info(dtype).packed;
  LS_CHECK(packed.has_value());
  return *packed == WeightFormat::kBF16 ? of_bf16 : *packed;
}

uint64_t PackedBytes(DType dtype, int64_t n_in, int64_t n_out) {
  const auto groups = static_cast<uint64_t>((n_out + kRowGroup - 1) / kRowGroup);
  return groups * LayoutOf(PackedFormat(dtype), n_in).bytes();
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
  matrix_.group_bytes = LayoutOf(matrix_.format, matrix_.n_in).bytes();
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
