// SPDX-License-Identifier: Apache-2.0
//
// What a target lends to drafts: its sizes, rows of its embedding, its LM head, and the lane that is free
// between its passes. Views, valid as long as the target.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "longspec/status.h"
#include "model/lane.h"
#include "network/model_sizes.h"
#include "tensor/tensor_view.h"

namespace longspec {

struct SharedParts {
  const ModelSizes* sizes = nullptr;
  CpuLane lane;
  TensorView embedding;                           // (n_vocab rows of n_embd), as stored in the file
  const kernels::PackedMatrix* output = nullptr;  // (n_vocab, n_embd), the LM head
  TensorView head;                                // the same as stored in the file
  kernels::WeightFormat bf16_format = kernels::WeightFormat::kBF16;  // what BF16 matrices are multiplied as

  // What the embedding holds of a token, (n_embd), not scaled. kInvalidArgument if it has no such token.
  Status Embed(int32_t token, float* x) const;
};

}  // namespace longspec
