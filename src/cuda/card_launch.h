// SPDX-License-Identifier: Apache-2.0
//
// Who launches bodies on a card for a runtime (kernels/gpu/runtime.h), in the parts of kernels/gpu/bodies.h.
// Only for what nvcc compiles.
#pragma once

#include "cuda/runtime.h"
#include "kernels/gpu/bodies.h"

namespace longspec::cuda {

// A runtime's stream, and the first error that a launch in it met.
struct CardStream {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSuccess;
};

struct LaunchOnCard {
  template <class Body>
  static void Launch(void* stream, const typename Body::Args& args) {
    auto& to = *static_cast<CardStream*>(stream);
    const cudaError_t error = TryLaunch<Body>(args, to.stream);
    if (to.error == cudaSuccess) to.error = error;
  }
};

const kernels::gpu::LaunchFunction* CardProductLaunches();
const kernels::gpu::LaunchFunction* CardAttentionLaunches();
const kernels::gpu::LaunchFunction* CardRowLaunches();

}  // namespace longspec::cuda
