// SPDX-License-Identifier: Apache-2.0
//
// What the registry entries of learned drafts share. Model: what a draft's checkpoint is loaded to, with a
// name kKind (draft_kinds.h) and static functions Load, CheckFit and Bytes as LongspecModel has them.
#pragma once

#include <string_view>

#include "base/status_macros.h"
#include "draft/draft_memory.h"
#include "draft/draft_weights.h"
#include "draft/registry.h"

namespace longspec {

inline constexpr DrafterOption kDraftWeightsOption = {
    .flags = "--spec-draft-weights",
    .member = &SpeculationOptions::draft_weights,
    .help = "type the draft model's matrices run in: q8_0 (default), q4_0, bf16, f16, f32"};

template <typename Model>
bool ReadsLearned(std::string_view architecture) {
  return architecture == Model::kKind;
}

template <typename Model>
Status LearnedFits(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) {
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, Model::kKind));
  return Model::CheckFit(*checkpoint, target.config);
}

// Of its weights alone.
template <typename Model>
Result<DraftMemory> LearnedMemory(const SpeculationOptions& options, const TargetFacts& target,
                                  DraftFiles& files) {
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, Model::kKind));
  const TensorView* head =
      target.file.FindTensor(target.config.tied_embeddings ? "token_embd.weight" : "output.weight");
  return DraftMemory{.fixed = Model::Bytes(*checkpoint, options.draft_weights, target.config, *head)};
}

}  // namespace longspec
