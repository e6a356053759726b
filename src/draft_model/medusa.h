// SPDX-License-Identifier: Apache-2.0
//
// The model of Medusa heads (arXiv 2401.10774): each predicts a token further on from one hidden state.
#pragma once

#include <cstdint>
#include <vector>

#include "draft_model/learned_draft.h"

namespace longspec {

// With h the target's final hidden state at position p, head i (0-based) predicts the token at p + i + 2:
//   logits = W_i (h + silu(A_i h + b_i))
// with W_i a head of its own, or the target's (or rows of it).
struct MedusaModel : LoadedFromFile<MedusaModel> {
  static constexpr std::string_view kKind = "medusa";
  static const DraftKind kFile;
  static Result<MedusaModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  struct Head {
    DraftMatrix linear;       // A (n_embd, n_embd)
    std::vector<float> bias;  // b (n_embd)
    DraftHead own;            // W of its own, if it has one
  };

  int n_embd = 0, n_vocab = 0;
  std::vector<Head> heads;

  const DraftHead& OutputOf(const Head& of) const { return of.own.matrix.n_out() > 0 ? of.own : head; }
};

}  // namespace longspec
