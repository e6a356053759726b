// SPDX-License-Identifier: Apache-2.0
//
// A model's weights, packed. Immutable once loaded.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/owned_bytes.h"
#include "base/thread_team.h"
#include "formats/gguf.h"
#include "kernels/packing.h"
#include "model/block.h"
#include "model/transformer.h"
#include "network/model_tensors.h"

namespace longspec {

// One layer's, by role; empty where the layer has none. Shapes are those of model_tensors.h.
class LayerWeights {
 public:
  std::span<const float> vector(TensorRole role) const { return vectors_[static_cast<size_t>(role)]; }
  const kernels::PackedWeights& matrix(TensorRole role) const { return matrices_[static_cast<size_t>(role)]; }

  void SetVector(TensorRole role, std::vector<float> values) {
    vectors_[static_cast<size_t>(role)] = std::move(values);
  }
  kernels::PackedWeights& matrix(TensorRole role) { return matrices_[static_cast<size_t>(role)]; }

 private:
  std::array<std::vector<float>, kTensorRoles> vectors_;
  std::array<kernels::PackedWeights, kTensorRoles> matrices_;
};

struct ModelWeights {
  OwnedBytes memory;  // of all matrices
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // (n_embd)
  kernels::PackedWeights output;   // (n_logits, n_embd)
  InputForms input_forms;          // of the matrices
  TensorView embedding;            // rows are decoded from the mapped file as they are needed
  TensorView head;                 // what `output` was packed from, in that file
};

// Of `options` it reads progress and what concerns the cache of packed weights.
Result<std::unique_ptr<const ModelWeights>> LoadModelWeights(const GgufFile& file, const ModelSpec& spec,
                                                             ThreadTeam& team,
                                                             const ModelLoadOptions& options);

}  // namespace longspec
