// SPDX-License-Identifier: Apache-2.0
//
// Repacking stored weight matrices into the layouts of tensor/weight_format.h, once, at load. Quantised types
// keep their integers and scales and run in arithmetic "q8", or "q8k" if they have super-blocks; float types
// keep their values. So repacking never rounds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "kernels/ops.h"
#include "tensor/tensor_view.h"

namespace longspec::kernels {

inline const WeightFormatInfo& Info(WeightFormat format) {
  return kWeightFormats[static_cast<size_t>(format)];
}
inline bool HasSuperBlocks(WeightFormat format) { return Info(format).arithmetic == Arithmetic::kQ8K; }
inline bool IsQuantized(WeightFormat format) {
  return Info(format).arithmetic == Arithmetic::kQ8 || HasSuperBlocks(format);
}
// Multiplied in "bf16" or "bf16-amx".
inline bool IsInBf16(WeightFormat format) {
  return Info(format).arithmetic == Arithmetic::kBF16 || Info(format).arithmetic == Arithmetic::kBF16Amx;
}
// Of quantised formats: bytes of the quants of a block of 32 for a group of 16 rows.
inline size_t BlockBytes(WeightFormat format) { return 64 * static_cast<size_t>(Info(format).bits); }
// "f32", "q8", "q8k", "bf16", "bf16-amx".
const char* ArithmeticName(WeightFormat format);

// Where the parts of a group of 16 rows lie: each is so many cells of `bytes` for every row of the group.
struct GroupPart {
  size_t n_cells = 0, bytes = 0;
};
struct GroupLayout {
  GroupPart quants;      // of float formats, the values
  GroupPart scales;      // and then the minima, of quantised formats
  GroupPart factors;     // of super-blocks
  size_t bytes() const;  // of a group, a multiple of 64
};
GroupLayout LayoutOf(WeightFormat format, int64_t n_in);

// REQUIRES for the rest: the tensor is a matrix (n_in, n_out) of a type CanDequantize knows; n_in a multiple
// of the type's block. `of_bf16`: what BF16 is multiplied as, kBF16, kBF16Pairs or kBF16Amx.
WeightFormat PackedFormat(DType dtype, WeightFormat of_bf16 = WeightFormat::kBF16);
uint64_t PackedBytes(DType dtype, int64_t n_in, int64_t n_out);

// The same matrix, in arithmetic "f32" if it is in "bf16" or "bf16-amx".
PackedMatrix InF32(PackedMatrix matrix);

// The layouts of tensor/weight_format.h and what fills them here. Packed weights are kept on disk
// (model/weights_cache.h): whatever changes a byte of a packed matrix changes this number, or files that
// older programs wrote would be read as if they had the new layout.
inline constexpr uint32_t kPackedLayoutVersion = 4;

// One packed matrix. Groups may be packed from several threads.
class PackedWeights {
 public:
  PackedWeights() = default;
  explicit PackedWeights(const TensorView& tensor);  // allocates; Pack fills
  // In `memory` (borrowed): PackedBytes of it, zeroed, 64-byte aligned. A model's matrices side by side in
  // few large pages are read faster than each in pages of its own.
  PackedWeights(const TensorView& tensor, std::byte* memory);
  // The matrix as Pack once left it in `packed` (borrowed, 64-byte aligned): there is nothing left to Pack.
  static PackedWeights Packed(const TensorView& tensor, const std::byte* packed);
  void Pack(const TensorView& tensor, int group_begin, int group_end);
  // What BF16 is multiplied as (kBF16, kBF16Pairs, kBF16Amx); the bytes are the same. Other formats stay what
  // they are.
  void MultiplyBf16As(WeightFormat format);
  const PackedMatrix& matrix() const { return matrix_; }
  int n_groups() const { return static_cast<int>((matrix_.n_out + kRowGroup - 1) / kRowGroup); }

 private:
  AlignedBuffer buffer_;  // empty if the memory is borrowed
  std::byte* data_ = nullptr;
  PackedMatrix matrix_;
};

}  // namespace longspec::kernels
