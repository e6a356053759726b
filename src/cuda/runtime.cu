// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

#include "cuda/runtime.h"

namespace longspec::cuda {

std::string WhyNoDevice(int index) {
  int n = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&n); error != cudaSuccess) {
    if (error == cudaErrorInsufficientDriver) {
      int driver = 0;
      cudaDriverGetVersion(&driver);
      if (driver == 0) return "no driver of NVIDIA's was found";
      return "the driver is for CUDA " + std::to_string(driver / 1000) + "." +
             std::to_string(driver % 1000 / 10) + "; 13.0 is needed";
    }
    return cudaGetErrorString(error);
  }
  if (n == 0) return "there is no card";
  if (index >= n) return "there is no such card, the last is cuda:" + std::to_string(n - 1);
  cudaDeviceProp card;
  if (const cudaError_t error = cudaGetDeviceProperties(&card, index); error != cudaSuccess)
    return cudaGetErrorString(error);
  if (card.major < 8) {
    return std::string(card.name) + " has compute capability " + std::to_string(card.major) + "." +
           std::to_string(card.minor) + "; 8.0 is needed";
  }
  return "";
}

void MustSucceed(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: CUDA, %s: %s (%s)\n", what, cudaGetErrorString(error),
               cudaGetErrorName(error));
  std::exit(1);
}

namespace {

// Freed pieces by their size: tests ask for the same ones again and again, and a piece must not be larger
// than asked for, or what lies behind it could be read unseen.
std::unordered_map<size_t, std::vector<std::byte*>>& FreePieces() {
  static auto* pieces = new std::unordered_map<size_t, std::vector<std::byte*>>;
  return *pieces;
}
constexpr size_t kLargestKept = 1 << 20;

}  // namespace

DeviceBytes::DeviceBytes(size_t n) : n_(n) {
  if (n == 0) return;
  if (std::vector<std::byte*>& pieces = FreePieces()[n]; !pieces.empty()) {
    bytes_ = pieces.back();
    pieces.pop_back();
    return;
  }
  const std::string what = "memory of the card, " + std::to_string(n) + " bytes";
  MustSucceed(cudaMalloc(reinterpret_cast<void**>(&bytes_), n), what.c_str());
}

DeviceBytes::~DeviceBytes() {
  if (bytes_ == nullptr) return;
  if (n_ <= kLargestKept) {
    FreePieces()[n_].push_back(bytes_);
  } else {
    cudaFree(bytes_);
  }
}

}  // namespace longspec::cuda
