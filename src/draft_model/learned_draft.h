// SPDX-License-Identifier: Apache-2.0
//
// What the registry entries of learned drafts share. Model: what a draft's checkpoint is loaded to, with a
// name kKind (draft_kinds.h) and static functions Load, CheckFit and Bytes as LongspecModel has them.
#pragma once

#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/draft_memory.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_layer.h"
#include "draft_model/draft_models.h"
#include "draft_model/draft_weights.h"
#include "draft_model/registry.h"
#include "draft_model/state_block.h"
#include "kv/chunk_pool.h"

namespace longspec {

inline constexpr DrafterOption kDraftWeightsOption = {
    .flags = "--spec-draft-weights",
    .member = &SpeculationOptions::draft_weights,
    .help = "type the draft model's matrices run in: q8_0 (default), q5_1, q5_0, q4_1, q4_0, bf16, f16, f32"};

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

// The same, with the activations and the one layer of keys and values of a StateBlock. `layer`: PREFIX of
// DraftLayer's names.
template <typename Model>
Result<DraftMemory> StateBlockMemory(const SpeculationOptions& options, const TargetFacts& target,
                                     DraftFiles& files, const std::string& layer) {
  LS_ASSIGN(DraftMemory memory, LearnedMemory<Model>(options, target, files));
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, Model::kKind));
  LS_ASSIGN(const DraftBlock block, ReadDraftLayerBlock(*checkpoint, target.config, layer));
  memory.fixed += StateBlock::ScratchBytes(block, DraftHeadRows(*checkpoint, target.config));
  memory.kv_chunk = memory.kept_chunk =
      KvChunkBytes(DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, target.cache), 1);
  return memory;
}

// What MakeDrafter of a learned draft asks of options before any file is opened.
inline Status CheckLearned(const SpeculationOptions& options) {
  LS_TRY(CheckDraftWeights(options.draft_weights));
  return ParseTreeShape(options.tree).status();
}

// What was made of texts by the model that these options name, which is loaded.
inline std::shared_ptr<DraftStates> LearnedStates(const SpeculationOptions& options,
                                                  const DraftContext& context, const DraftBlock& block) {
  const KvLayout layout =
      DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, context.cache->Span(0).layout);
  return context.models->States(options.draft_model, options.draft_weights, layout);
}

// What the passes of a model work in that these options name, which is loaded. Forward: a class with
// MakeScratch(model, target). Throws std::bad_alloc.
template <typename Forward, typename Model>
auto LearnedScratch(const SpeculationOptions& options, const DraftContext& context, const Model& model) {
  return context.models->Scratch(options.draft_model, options.draft_weights, [&] {
    return Forward::MakeScratch(model, *context.target->shared_parts());
  });
}

// make(std::shared_ptr<const Model>, TreeShape) returns a std::unique_ptr of a drafter, and may throw
// std::bad_alloc. `tree`: the shape where the options name none.
template <typename Model, typename Make>
DrafterResult MakeLearned(const SpeculationOptions& options, const DraftContext& context, const char* tree,
                          const Make& make) {
  LS_CHECK(context.target != nullptr && context.cache != nullptr);
  const SharedParts* target = context.target->shared_parts();
  if (target == nullptr) {
    return Unsupported(options.draft_model + ": this target has no layers to share with a draft model");
  }
  LS_ASSIGN(TreeShape shape, ParseTreeShape(options.tree.empty() ? tree : options.tree));
  LS_ASSIGN(auto model, context.models->Learned<Model>(options.draft_model, options.draft_weights, *target));
  try {
    return std::unique_ptr<Drafter>(make(std::move(model), std::move(shape)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(options.draft_model + ": no memory for the draft model's activations");
  }
}

}  // namespace longspec
