// SPDX-License-Identifier: Apache-2.0
//
// What drafts that learn the target's states share (EAGLE, Beagle): noise on the states they read, and the
// loss of what they make of them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "train/trainee.h"

namespace longspec::train {

// Uniform noise is (u - 0.5) * scale * 512 / length as in EAGLE's trainer, of each sequence by its own
// length; Gaussian noise has the deviation `scale` (Beagle). From `seed` alone.
at::Tensor AddNoise(const at::Tensor& states, const Ends& ends, const TraineeOptions& options, uint64_t seed);

// States whose rows have a label.
struct LabelledStates {
  at::Tensor states;  // (r, n_embd)
  at::Tensor rows;    // (r) int64: of the batch
  at::Tensor labels;  // (r) int64: of the batch's targets
  int64_t n() const { return rows.numel(); }
};
// `states` (m, n_embd) are the drafts for rows (m) of the batch.
LabelledStates SelectLabelled(const PlacedBatch& batch, const at::Tensor& states, const at::Tensor& rows);

// Added up over rows: the cross-entropy behind the head, and the mean over dimensions of SmoothL1 to the
// target's state.
at::Tensor EntropyLoss(const LabelledStates& labelled, const Targets& targets, const at::Tensor& head);
at::Tensor RegressionLoss(const LabelledStates& labelled, const PlacedBatch& batch);

std::string DescribeRegression(const TraineeOptions& options);

}  // namespace longspec::train
