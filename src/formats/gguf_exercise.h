// SPDX-License-Identifier: Apache-2.0
//
// For tests and fuzzing: does with arbitrary bytes everything that a program does with a model file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/gguf.h"
#include "tensor/dequantize.h"

namespace longspec {

// True if the bytes are a GGUF file. Every value is looked up as every type and every byte of every tensor is
// read.
inline bool ExerciseGguf(std::span<const std::byte> bytes) {
  const auto file = GgufFile::Parse(bytes, "fuzz");
  if (!file.ok()) return false;
  const GgufFile& gguf = **file;
  size_t n_ok = 0;
  for (const auto& [key, value] : gguf.metadata()) {
    n_ok +=
        gguf.GetUint(key).ok() + gguf.GetFloat(key).ok() + gguf.GetString(key).ok() + gguf.GetBool(key).ok();
    n_ok += gguf.GetStrings(key).ok() + gguf.GetInts(key).ok() + gguf.GetFloats(key).ok();
  }
  unsigned sum = static_cast<unsigned>(n_ok);
  for (const TensorView& tensor : gguf.tensors()) {
    for (size_t i = 0; i < tensor.n_bytes; ++i) sum += std::to_integer<unsigned>(tensor.data[i]);
    std::vector<float> row(256);
    const int block = Info(tensor.dtype).block_elements;
    if (CanDequantize(tensor.dtype)) DequantizeRow(tensor.dtype, tensor.data, block, row.data());
  }
  volatile unsigned sink = sum;  // keeps the reads
  (void)sink;
  return true;
}

}  // namespace longspec
