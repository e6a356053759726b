// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy behind an LM head, some rows at a time: the logits of a whole batch are never there at once.
// The gradient is computed with the loss, while a part's logits are at hand.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace longspec::train {

// What rows should predict: a few tokens and their weights, and a share of the target's own distribution,
// softmax(head * states + log_counts). Weights and share of a row add up to 1. One token of weight 1 is the
// usual label.
struct Targets {
  at::Tensor ids;      // (n, k) int64, rows of the head
  at::Tensor weights;  // (n, k) f32
  at::Tensor states;   // (n, width) the target's final hidden states; undefined: no such share
  at::Tensor soft;     // (n) f32, with states
  at::Tensor logits;   // (n, n_vocab) the states' scores, in bf16; undefined: computed where they are needed
  // (n_vocab) f32: how many tokens each row of the head stands for, as a logarithm, which is added to every
  // score of it; undefined: one each.
  at::Tensor log_counts;

  int64_t n() const { return ids.size(0); }
  Targets Select(const at::Tensor& rows) const;  // rows (m) int64
  Targets Slice(int64_t begin, int64_t end) const;
  // For losses that read most rows several times, behind the same head: with logits, where they may be in
  // bf16 and are not too many.
  Targets WithLogits(const at::Tensor& head) const;
  Targets To(at::Device device) const;
};

// The mean over rows of the cross-entropy between `targets` and softmax(head * hidden + log_counts), a scalar
// that is differentiable in `hidden` (n, width) and, if it asks for a gradient, in `head` (n_vocab, width).
// The targets' states go through `label_head`, by default `head`. A head in bf16 has its products in bf16.
// There is at least one row. `rows_at_once`: of which logits are there at the same time, 0: RowsAtOnce.
at::Tensor FusedCrossEntropy(const at::Tensor& hidden, const at::Tensor& head, const Targets& targets,
                             int64_t rows_at_once = 0, const at::Tensor& label_head = {});

// Rows whose products with a head are computed together: few enough for a CPU's cache, many for a GPU.
int64_t RowsAtOnce(const at::Tensor& head);

}  // namespace longspec::train
