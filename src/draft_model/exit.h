// SPDX-License-Identifier: Apache-2.0
//
// The model of an early-exit draft: one block of its own after the target's first layers.
#pragma once

#include <cstdint>
#include <vector>

#include "draft_model/draft_block.h"
#include "draft_model/learned_draft.h"

namespace longspec {

// With h the target's residual stream after layer `exit_layer` at a position:
//   y = h + self(norm(h)); z = y + mlp(norm(y)); logits of the next token = W norm(z)
// with the target's head W, or rows of it. Keys and values at a position are made of h there. A draft that
// has `feature` reads h + feature f in the place of h, with f the target's final hidden state at the position
// before it, and below the root of a tree its own norm(z) there; nothing sees position 0.
struct ExitModel : LoadedFromFile<ExitModel> {
  static constexpr std::string_view kKind = "exit";
  static const DraftKind kFile;
  static Result<ExitModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  int exit_layer = 0;  // after which it reads, 0-based ("longspec_exit_layer")
  DraftLayer layer;
  bool reads_feature = false;
  DraftMatrix feature;  // (n_embd, n_embd)
  std::vector<float> output_norm;
};

}  // namespace longspec
