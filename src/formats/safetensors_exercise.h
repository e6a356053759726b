// SPDX-License-Identifier: Apache-2.0
//
// For tests and fuzzing: does with arbitrary bytes everything that a program does with a safetensors file.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "formats/safetensors.h"
#include "tensor/dequantize.h"

namespace longspec {

// True if the bytes are a safetensors file. Every byte of every tensor is read, and what was read is written
// and read again.
inline bool ExerciseSafetensors(std::span<const std::byte> bytes) {
  const auto file = SafetensorsFile::Parse(bytes, "fuzz");
  if (!file.ok()) return false;
  unsigned sum = 0;
  SafetensorsWriter writer;
  for (const auto& [key, value] : (*file)->metadata()) writer.SetMetadata(key, value);
  for (const TensorView& tensor : (*file)->tensors()) {
    for (size_t i = 0; i < tensor.n_bytes; ++i) sum += std::to_integer<unsigned>(tensor.data[i]);
    sum += (*file)->FindTensor(tensor.name) == &tensor ? 1 : 0;
    if (CanDequantize(tensor.dtype)) {
      std::vector<float> row(static_cast<size_t>(tensor.shape[0]));
      DequantizeRow(tensor.dtype, tensor.data, tensor.shape[0], row.data());
    }
    writer.AddTensor(tensor.name, tensor.dtype, {tensor.shape, tensor.shape + tensor.n_dims},
                     {tensor.data, tensor.n_bytes});
  }
  const auto written = writer.Serialize();
  const auto again = SafetensorsFile::Parse(written, "again");
  volatile unsigned sink = sum;  // keeps the reads
  (void)sink;
  return again.ok() && (*again)->tensors().size() == (*file)->tensors().size();
}

}  // namespace longspec
