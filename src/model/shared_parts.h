// SPDX-License-Identifier: Apache-2.0
//
// What a draft model may borrow of its target: shapes, the embedding, the LM head, rotary angles, and the
// means to compute with them. Views, valid as long as the target. The team is free between the target's
// forward passes.
#pragma once

#include "base/thread_team.h"
#include "kernels/ops.h"
#include "network/model_sizes.h"
#include "tensor/tensor_view.h"

namespace longspec {

struct SharedParts {
  const ModelSizes* sizes = nullptr;
  const kernels::KernelTable* kernels = nullptr;
  ThreadTeam* team = nullptr;
  TensorView embedding;                           // (n_vocab rows of n_embd), as stored in the file
  const kernels::PackedMatrix* output = nullptr;  // (n_vocab, n_embd), the LM head
  TensorView head;                                // the same as stored in the file
  kernels::WeightFormat bf16_format = kernels::WeightFormat::kBF16;  // what BF16 matrices are multiplied as
};

}  // namespace longspec
