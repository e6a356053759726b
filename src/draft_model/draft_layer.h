// SPDX-License-Identifier: Apache-2.0
//
// The weights of a draft's own transformer block whose input is as wide as the target's residual stream:
// attention and an MLP, each after a norm, under the names that Hugging Face gives them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "draft_model/draft_block.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "kernels/packing.h"
#include "longspec/status.h"
#include "model/block.h"

namespace longspec {

struct DraftLayer {
  DraftBlock block;
  std::vector<float> attention_norm, mlp_norm;  // (n_embd)
  kernels::PackedWeights q, k, v, o, gate, up, down;
  std::vector<float> q_bias, k_bias, v_bias;  // empty: none

  // Its tensors, of a block of this shape: PREFIX.input_layernorm.weight, PREFIX.ATTENTION.q_proj.weight, ...
  std::vector<DraftPart> Parts(const BlockShape& shape, const std::string& prefix,
                               const std::string& attention);

  AttentionWeights attention() const;
  MlpWeights mlp() const;
  // Keys and values of states, which pass this norm or none.
  AttentionWeights keys(std::span<const float> norm) const;
  InputForms forms() const;
};

// ReadDraftBlock of the MLP PREFIX.mlp. Rotary positions are the target's also where there is no
// configuration.
Result<DraftBlock> ReadDraftLayerBlock(const DraftCheckpoint& checkpoint, const LlamaConfig& target,
                                       const std::string& prefix);

}  // namespace longspec
