// SPDX-License-Identifier: Apache-2.0
//
// TokenSwift's heads (arXiv 2502.18890) made ready for one target: each goes on from the state of the one
// before. Immutable; shared by all drafters of that target.
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

// With h_0 the output of the target's last layer at position p, before the final norm, head i (0-based)
// predicts the token at p + i + 2:
//   h_(i+1) = h_i + A_i norm(h_i; a_i)
//   logits  = W norm(h_(i+1); b_i)
// with norms of root mean square and W the target's head, or rows of it (research: baselines.md 3.4).
struct TokenswiftModel {
  static constexpr std::string_view kKind = "tokenswift";

  // `weights`: CheckDraftWeights. What does not fit the target is refused with the reason.
  static Result<std::shared_ptr<const TokenswiftModel>> Load(const DraftCheckpoint& checkpoint,
                                                             const std::string& weights,
                                                             const SharedParts& target);
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  // What bytes() of the loaded model will be. REQUIRES: the draft fits the target.
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);

  struct Head {
    kernels::PackedWeights linear;               // A (n_embd, n_embd)
    std::vector<float> input_norm, output_norm;  // a, b (n_embd)
  };

  std::string path;
  std::vector<Head> heads;
  DraftHead output;      // W
  AlignedBuffer memory;  // of all matrices

  size_t bytes() const { return memory.size() + output.memory.size(); }
};

}  // namespace longspec
