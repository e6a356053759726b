// SPDX-License-Identifier: Apache-2.0
//
// One forward and backward pass over a micro-batch. Free functions of their arguments: from any thread.
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "train/draft_net.h"
#include "train/feature_set.h"
#include "train/files.h"
#include "train/parallel_passes.h"
#include "train/schedule.h"

namespace longspec::train {

// What a pass draws; shared by all its sequences.
struct PassDraw {
  int lag = 1;
  PositionDraw positions;
};

// The batch on the embedding's device and at the positions that were drawn. RoPE is a rotation, so the
// target's keys are moved to them exactly.
DraftNet::Input PlaceBatch(const Batch& batch, const at::Tensor& embedding, const FeatureTarget& target,
                           const PassDraw& draw);

// The loss of the batch's rows, added up, and its gradients by `parameters`; nothing else gets one. Without
// rows only tokens are counted.
PassSum RunPass(const DraftNet& net, std::span<const at::Tensor> parameters, const FrozenParts& frozen,
                const Batch& batch, const PassDraw& draw);

}  // namespace longspec::train
