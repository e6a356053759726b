// SPDX-License-Identifier: Apache-2.0
//
// Packed matrices of random numbers, made on the card: for times, not for results.
#pragma once

#include "cuda/runtime.h"
#include "kernels/ops.h"

namespace longspec::cuda {

// A matrix of a super-block format in memory of the card, that a DeviceBytes owns.
struct DeviceMatrix {
  const std::byte* data = nullptr;
  size_t group_bytes = 0;
  int64_t n_out = 0, n_in = 0;
  kernels::WeightFormat format = kernels::WeightFormat::kSuperU4Min;

  int n_groups() const { return static_cast<int>((n_out + kernels::kRowGroup - 1) / kernels::kRowGroup); }
  size_t bytes() const { return group_bytes * static_cast<size_t>(n_groups()); }
};

size_t SuperGroupBytes(kernels::WeightFormat format, int64_t n_in);

// Random bytes whose quants are in range and whose f16 numbers are finite and small. `matrix.data` is to be
// filled.
void FillRandomly(const DeviceMatrix& matrix, std::byte* data, uint32_t seed, cudaStream_t stream);
// Numbers in (-1, 1).
void FillFloats(float* data, size_t n, uint32_t seed, cudaStream_t stream);
// Numbers in (-1, 1) as f16.
void FillHalves(std::byte* data, size_t n, uint32_t seed, cudaStream_t stream);

// Bytes of at most 7 bits: as activations they are finite.
void FillSmallBytes(std::byte* data, size_t n, uint32_t seed, cudaStream_t stream);

}  // namespace longspec::cuda
