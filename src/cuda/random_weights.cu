// SPDX-License-Identifier: Apache-2.0
#include "cuda/random_weights.h"

namespace longspec::cuda {
namespace {

using kernels::WeightFormat;

__device__ uint32_t Hash(uint64_t i, uint32_t seed) {
  uint64_t z = (i + (uint64_t{seed} << 40)) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
  return static_cast<uint32_t>(z >> 32);
}

constexpr int kThreads = 256;
constexpr unsigned kBlocks = 2048;

// Bytes of a group: quants up to `quants`, f16 numbers up to `numbers`, then factors of at most 6 bits.
__global__ void Weights(uint32_t* words, size_t n_words, size_t group_words, size_t quants, size_t numbers,
                        uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < n_words;
       i += size_t{gridDim.x} * kThreads) {
    const size_t at = i % group_words;
    const uint32_t random = Hash(i, seed);
    words[i] = at < quants    ? random
               : at < numbers ? (random & 0x83FF83FFU) | 0x14001400U
                              : random & 0x3F3F3F3FU;
  }
}

__global__ void Floats(float* to, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < n; i += size_t{gridDim.x} * kThreads)
    to[i] = static_cast<float>(static_cast<int32_t>(Hash(i, seed))) * 0x1p-31F;
}

__global__ void Halves(uint16_t* to, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < n; i += size_t{gridDim.x} * kThreads)
    to[i] = DeviceCta::ToHalf(static_cast<float>(static_cast<int32_t>(Hash(i, seed))) * 0x1p-31F);
}

__global__ void SmallBytes(uint32_t* to, size_t n_words, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < n_words; i += size_t{gridDim.x} * kThreads)
    to[i] = Hash(i, seed) & 0x3F7F7F7FU;
}

size_t QuantBytes(WeightFormat format, int64_t n_in) {
  const auto bits = static_cast<size_t>(kWeightFormats[static_cast<int>(format)].bits);
  return static_cast<size_t>(n_in) * kernels::kRowGroup * bits / 8;
}

size_t NumberBytes(WeightFormat format, int64_t n_in) {
  const size_t numbers = format == WeightFormat::kSuperU6Halves ? 1 : 2;
  return static_cast<size_t>(n_in / kernels::kSuperBlock) * kernels::kRowGroup * 2 * numbers;
}

}  // namespace

size_t SuperGroupBytes(WeightFormat format, int64_t n_in) {
  const auto n_block = static_cast<size_t>(n_in / kernels::kQuantBlock);
  const size_t all = QuantBytes(format, n_in) + NumberBytes(format, n_in) + n_block * kernels::kRowGroup * 2;
  return (all + 63) / 64 * 64;
}

void FillRandomly(const DeviceMatrix& matrix, std::byte* data, uint32_t seed, cudaStream_t stream) {
  const size_t quants = QuantBytes(matrix.format, matrix.n_in),
               numbers = NumberBytes(matrix.format, matrix.n_in);
  Weights<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<uint32_t*>(data), matrix.bytes() / 4,
                                            matrix.group_bytes / 4, quants / 4, (quants + numbers) / 4, seed);
  MustSucceed(cudaGetLastError(), "random weights");
}

void FillFloats(float* data, size_t n, uint32_t seed, cudaStream_t stream) {
  Floats<<<kBlocks, kThreads, 0, stream>>>(data, n, seed);
  MustSucceed(cudaGetLastError(), "random numbers");
}

void FillHalves(std::byte* data, size_t n, uint32_t seed, cudaStream_t stream) {
  Halves<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<uint16_t*>(data), n, seed);
  MustSucceed(cudaGetLastError(), "random numbers");
}

void FillSmallBytes(std::byte* data, size_t n, uint32_t seed, cudaStream_t stream) {
  SmallBytes<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<uint32_t*>(data), n / 4, seed);
  MustSucceed(cudaGetLastError(), "random numbers");
}

}  // namespace longspec::cuda
