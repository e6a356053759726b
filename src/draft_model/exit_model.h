// SPDX-License-Identifier: Apache-2.0
//
// An early-exit draft made ready for one target: one block of its own after the target's first layers.
// Immutable; shared by all drafters of that target.
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

// With h the target's residual stream after layer `exit_layer` at a position:
//   y = h + self(norm(h)); z = y + mlp(norm(y)); logits of the next token = W norm(z)
// with the target's head W, or rows of it. Keys and values at a position are made of h there. A draft that
// has `feature` reads h + feature f in the place of h, with f the target's final hidden state at the position
// before it, and below the root of a tree its own norm(z) there; nothing sees position 0.
struct ExitModel {
  static constexpr std::string_view kKind = "exit";

  // `weights`: CheckDraftWeights. What does not fit the target is refused with the reason.
  static Result<std::shared_ptr<const ExitModel>> Load(const DraftCheckpoint& checkpoint,
                                                       const std::string& weights, const SharedParts& target);
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  // What bytes() of the loaded model will be. REQUIRES: the draft fits the target, and so below.
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);
  // The layer after which it reads, 0-based ("longspec_exit_layer").
  static Result<int> ExitLayer(const DraftCheckpoint& checkpoint, const LlamaConfig& target);

  static bool ReadsFeature(const DraftCheckpoint& checkpoint);

  std::string path;
  int trained_positions = 0;  // 0: unknown
  int exit_layer = 0;
  DraftLayer layer;
  bool reads_feature = false;
  kernels::PackedWeights feature;  // (n_embd, n_embd)
  std::vector<float> output_norm;
  DraftHead head;
  AlignedBuffer memory;  // of all matrices

  size_t bytes() const { return memory.size() + head.memory.size(); }
};

}  // namespace longspec
