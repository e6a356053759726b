// SPDX-License-Identifier: Apache-2.0
//
// CUDA's runtime, whose errors are one line that says what was tried. Only for what nvcc compiles.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "cuda/device_cta.h"
#include "kernels/gpu/cta.h"

namespace longspec::cuda {

// "" where there is such a card that can run the kernels, else why not.
std::string WhyNoDevice(int index = 0);

// Ends the program with one line if `error` is one.
void MustSucceed(cudaError_t error, const char* what);

// Memory of the device.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t n);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* get() const { return bytes_; }
  size_t size() const { return n_; }

 private:
  std::byte* bytes_ = nullptr;
  size_t n_;
};

template <typename Body>
constexpr int MinBlocks() {
  if constexpr (requires { Body::kMinBlocks; }) return Body::kMinBlocks;
  return 1;
}

template <typename Body>
__global__ void __launch_bounds__(Body::kThreads, MinBlocks<Body>())
    RunBody(const __grid_constant__ typename Body::Args args) {
  Body::Run(DeviceCta(), args);
}

// Behind what is in the stream.
template <typename Body>
cudaError_t TryLaunch(const typename Body::Args& args, cudaStream_t stream) {
  const kernels::gpu::Grid grid = Body::GridOf(args);
  if (grid.width == 0 || grid.height == 0) return cudaSuccess;
  if (grid.shared_bytes > 48 << 10) {
    const cudaError_t error = cudaFuncSetAttribute(RunBody<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(grid.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  RunBody<Body><<<dim3(static_cast<unsigned>(grid.width), static_cast<unsigned>(grid.height)), Body::kThreads,
                  grid.shared_bytes, stream>>>(args);
  return cudaGetLastError();
}

template <typename Body>
void Launch(const typename Body::Args& args, cudaStream_t stream) {
  MustSucceed(TryLaunch<Body>(args, stream), "launch of a kernel");
}

}  // namespace longspec::cuda
