// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy behind a frozen LM head, some rows at a time: the logits of a whole batch are never there at
// once. The gradient is computed with the loss, while a part's logits are at hand.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace longspec::train {

// What a row should predict: a few tokens and their probabilities, which add up to 1. One token of
// probability 1 is the usual label.
struct SparseTargets {
  at::Tensor ids;      // (n, k) int64, rows of the head
  at::Tensor weights;  // (n, k) f32
};

// The mean over rows of -sum_k weights * log softmax(head * hidden)[ids], a scalar that is differentiable in
// `hidden` (n, width). `head` (n_vocab, width) gets no gradient. n > 0.
at::Tensor FusedCrossEntropy(const at::Tensor& hidden, const at::Tensor& head, const SparseTargets& targets,
                             int64_t rows_at_once = 256);

}  // namespace longspec::train
