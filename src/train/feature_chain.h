// SPDX-License-Identifier: Apache-2.0
//
// The draft blocks of EAGLE (Li et al. 2024): they read the target's state of the token before and the
// embedding of a token (early exit: its residual stream), and after the first step their own state in the
// target's place. All chains of a batch run at once, as in training-time test (EAGLE-3): at step i each slot
// sees the first step's keys of slots up to its own and its own keys of later steps.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/feature_regression.h"
#include "train/layers.h"
#include "train/slots.h"
#include "train/trainee.h"

namespace longspec::train {

// What a block makes of a slot's token and feature.
struct BlockInput {
  at::Tensor residual;  // (m, n_embd)
  at::Tensor attended;  // (m, width): what queries, keys and values are made of
};

struct FeatureBlock {
  std::string prefix;  // of self_attn, mlp and post_attention_layernorm
  std::function<BlockInput(const at::Tensor& token, const at::Tensor& feature, int step)> enter;
};

// Of the loss of each further step beside the one before (EAGLE-3).
inline constexpr double kStepWeight = 0.8;

// The block's output of each step, (m, n_embd), whose RoPE position is one less than the token's. `tokens`
// (n, n_embd): what the block reads of each row's token. `features` (m, n_embd): of the slots' first step.
// What a slot without a token that far on gets is of no meaning.
std::vector<at::Tensor> RunChains(const FeatureBlock& block, const Parameters& parameters,
                                  const FeatureTarget& target, const PlacedBatch& batch,
                                  const at::Tensor& tokens, const at::Tensor& features, int steps);

// The loss of such outputs behind the batch's loss head; `sum_of` gives that of a step's labelled states,
// added up.
PassLoss ChainLoss(const std::vector<at::Tensor>& outputs, const PlacedBatch& batch,
                   const std::function<at::Tensor(const LabelledStates&, const Targets&)>& sum_of);

// Multiply-adds of RunChains.
double ChainMacs(const Parameters& parameters, const FeatureTarget& target, const Ends& ends, int steps);

}  // namespace longspec::train
