// SPDX-License-Identifier: Apache-2.0
//
// Which tensors a model file of the Llama family must have, by GGUF name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/llama.h"

namespace longspec {

struct TensorRequirement {
  std::string name;
  int64_t n_in = 0;   // shape[0]
  int64_t n_out = 1;  // rows; 1 for a vector
};

// Those of one block.
std::vector<TensorRequirement> LayerRequirements(const LlamaConfig& config, int layer);

}  // namespace longspec
