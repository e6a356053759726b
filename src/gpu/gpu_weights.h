// SPDX-License-Identifier: Apache-2.0
//
// A model's weights in a card's memory, packed as they are for a CPU (tensor/weight_format.h).
#pragma once

#include <array>
#include <vector>

#include "base/aligned_buffer.h"
#include "gpu/gpu_memory.h"
#include "kernels/ops.h"
#include "longspec/status.h"
#include "model/model_weights.h"
#include "network/model_tensors.h"

namespace longspec {

struct GpuWeights {
  // Of one layer, by role; null where it has none.
  struct Layer {
    const kernels::PackedMatrix& matrix(TensorRole role) const { return matrices[static_cast<size_t>(role)]; }
    const float* vector(TensorRole role) const { return vectors[static_cast<size_t>(role)]; }

    std::array<kernels::PackedMatrix, kTensorRoles> matrices;
    std::array<const float*, kTensorRoles> vectors = {};
  };

  GpuBuffer matrices, vectors;
  std::vector<Layer> layers;
  const float* output_norm = nullptr;
  kernels::PackedMatrix output;
};

// kResourceExhausted: the card has no room for them.
Result<GpuWeights> CopyToCard(Runtime& card, const ModelWeights& weights);

// A matrix that is kept in host memory, from weights that are not. Throws std::bad_alloc.
struct HostMatrix {
  explicit HostMatrix(const kernels::PackedMatrix& of);
  AlignedBuffer bytes;
  kernels::PackedMatrix matrix;
};

}  // namespace longspec
