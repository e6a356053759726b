// SPDX-License-Identifier: Apache-2.0
//
// One forward and backward pass over a micro-batch. Free functions of their arguments: from any thread.
#pragma once

#include "train/parallel_passes.h"
#include "train/trainee.h"

namespace longspec::train {

// The batch on the device of `frozen`, behind all of its head, and at the positions that were drawn. RoPE is
// a rotation, so the target's keys are moved to them exactly.
PlacedBatch PlaceBatch(Batch batch, const FrozenHeads& frozen, const FeatureTarget& target,
                       const PositionDraw& positions);

// The loss of the batch's rows, added up, and its gradients by the trainee's trained parameters; nothing else
// gets one. Without rows only tokens are counted.
PassSum RunPass(const Trainee& trainee, Batch batch, const PassDraw& draw);

}  // namespace longspec::train
