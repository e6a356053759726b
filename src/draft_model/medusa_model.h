// SPDX-License-Identifier: Apache-2.0
//
// Medusa heads (arXiv 2401.10774) made ready for one target: each predicts a token further on from one hidden
// state. Immutable; shared by all drafters of that target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "kernels/packing.h"
#include "model/llama.h"
#include "model/shared_parts.h"

namespace longspec {

// With h the target's final hidden state at position p, head i (0-based) predicts the token at p + i + 2:
//   logits = W_i (h + silu(A_i h + b_i))
// with W_i a head of its own, or the target's (or rows of it).
struct MedusaModel {
  static constexpr std::string_view kKind = "medusa";

  // `weights`: CheckDraftWeights. What does not fit the target is refused with the reason.
  static Result<std::shared_ptr<const MedusaModel>> Load(const DraftCheckpoint& checkpoint,
                                                         const std::string& weights,
                                                         const SharedParts& target);
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  // What bytes() of the loaded model will be. REQUIRES: the draft fits the target.
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);

  struct Head {
    kernels::PackedWeights linear;  // A (n_embd, n_embd)
    std::vector<float> bias;        // b (n_embd)
    kernels::PackedWeights own;     // W of its own, if it has one
    DraftHead own_head;             // a view of it
  };

  std::string path;
  int n_embd = 0;
  std::vector<Head> heads;
  DraftHead target_head;  // what heads without one of their own use
  AlignedBuffer memory;   // of all matrices

  const DraftHead& OutputOf(const Head& head) const {
    return head.own_head.matrix.n_out > 0 ? head.own_head : target_head;
  }
  size_t bytes() const { return memory.size() + target_head.memory.size(); }
};

}  // namespace longspec
