// SPDX-License-Identifier: Apache-2.0
//
// What the losses of a pass choose among: every token of the draft's head, or fewer, which costs less: a
// sampled softmax (Jean et al., "On Using Very Large Target Vocabulary for Neural Machine Translation",
// 2015). Those that were drawn stand for those that were not, on both sides, the draft's and the target's:
// sums over the head, and so gradients, are right on average.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "train/fused_loss.h"

namespace longspec::train {

struct LossHead {
  at::Tensor weight;  // (n, n_embd): frozen rows of the target's head, in the type that products have
  at::Tensor tokens;  // (n) int64, ascending: which rows of the draft's head they are; undefined: all

  // The same rows of a head (m, n_embd) that is trained.
  at::Tensor RowsOf(const at::Tensor& head) const;
};

// All of `head`, or, where it has more than `count` > 0 rows, those of the targets' tokens and as many
// others, drawn by `seed`, as make `count` together, but at least one. The targets' ids then count rows of
// that choice.
LossHead DrawLossHead(const at::Tensor& head, int64_t count, uint64_t seed, Targets* targets);

}  // namespace longspec::train
