// SPDX-License-Identifier: Apache-2.0
//
// A Beagle draft (arXiv 2505.24544) made ready for one target: one layer of cross-attention from tokens to
// the target's final hidden states. Immutable; shared by all drafters of that target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "draft_model/draft_layer.h"
#include "draft_model/draft_weights.h"
#include "model/shared_parts.h"

namespace longspec {

// At position i, with token t, states s at positions before i, the target's embedding E and head W:
//   y = E[t] + cross(norm(E[t]), s);  p = y + mlp(norm(y));  logits of the next token = W p
// where s are the target's final hidden states, and at positions that are guesses the draft's own p. Keys and
// values are made of s as it is, or of norm(s) where the draft has a norm for it ("kv_norm").
struct BeagleModel {
  static constexpr std::string_view kKind = "beagle";

  // `weights`: CheckDraftWeights. What does not fit the target is refused with the reason.
  static Result<std::shared_ptr<const BeagleModel>> Load(const DraftCheckpoint& checkpoint,
                                                         const std::string& weights,
                                                         const SharedParts& target);
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  // What bytes() of the loaded model will be. REQUIRES: the draft fits the target.
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);

  std::string path;
  int trained_positions = 0;  // 0: unknown
  bool concat = true;         // guesses see the states of the guesses before them, not the target's alone
  DraftLayer layer;
  std::vector<float> state_norm;  // empty: none
  DraftHead head;
  AlignedBuffer memory;  // of all matrices

  size_t bytes() const { return memory.size() + head.memory.size(); }
};

}  // namespace longspec
