// SPDX-License-Identifier: Apache-2.0
//
// What learned drafts share: how a file becomes a model for one target, and how the table of drafters knows
// it. A kind declares its tensors once, and from that follow whether a file fits, what memory it will take,
// and loading.
#pragma once

#include <concepts>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "draft/drafter_entry.h"
#include "draft/tree_shape.h"
#include "draft_model/block_forward.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_lane.h"
#include "draft_model/draft_models.h"
#include "draft_model/draft_weights.h"
#include "kv/chunk_pool.h"
#include "model/shared_parts.h"
#include "network/model_tensors.h"

namespace longspec {

// What models of all kinds hold. Immutable once loaded; shared by all drafters of a target.
struct LearnedModel {
  std::string path;
  int trained_positions = 0;  // 0: unknown
  DraftHead head;             // the target's, or rows of it
  AlignedBuffer memory;       // of all matrices

  size_t bytes() const { return memory.size() + head.memory.size(); }
};

// A model of one kind, which is `struct Model : LoadedFromFile<Model>` with
//   static constexpr std::string_view kKind;  // as files and --spec-type name it
//   static const DraftKind kFile;
//   // What the header of a file says. What does not fit the target is refused with the reason.
//   static Result<Model> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
//   // Its tensors, for what was read. Parts point into this object.
//   std::vector<DraftPart> Parts();
//   // What drafting with it takes besides its weights. `n_logits`: of a row.
//   DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits)
//   const;
// and, if something is left to do when its weights are there, void Finish(const SharedParts& target).
template <typename Model, typename Fields = LearnedModel>
struct LoadedFromFile : Fields {
  // `weights`: CheckDraftWeights.
  static Result<std::shared_ptr<const Model>> Load(const DraftCheckpoint& checkpoint,
                                                   const std::string& weights,
                                                   const SharedParts& target) try {
    LS_TRY(CheckDraftWeights(weights));
    LS_ASSIGN(Model read, Fitting(checkpoint, *target.sizes));
    auto model = std::make_shared<Model>(std::move(read));
    if (Model::kFile.head_of_target) LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->head));
    LS_TRY(LoadDraftParts(checkpoint, model->Parts(), weights, target, &model->memory));
    if constexpr (requires { model->Finish(target); }) model->Finish(target);
    return std::shared_ptr<const Model>(std::move(model));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
  }

  // Whether the draft was made for this target, as far as both say: its configuration and the shapes of its
  // tensors.
  static Status CheckFit(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
    return Fitting(checkpoint, target).status();
  }

  // What bytes() of the loaded model will be. `target_head`: the target's output matrix.
  uint64_t BytesToLoad(const DraftCheckpoint& checkpoint, const std::string& weights,
                       const TensorView& target_head) {
    const std::vector<DraftPart> parts = static_cast<Model*>(this)->Parts();
    return DraftMatrixBytes(checkpoint, parts, weights) +
           (Model::kFile.head_of_target ? DraftHeadBytes(checkpoint, weights, target_head) : 0);
  }

 protected:
  // For Read: a model of which nothing is known but its file.
  static Model Of(const DraftCheckpoint& checkpoint) {
    Model model;
    model.path = checkpoint.path;
    model.trained_positions = checkpoint.config.trained_positions;
    return model;
  }

 private:
  static Result<Model> Fitting(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
    LS_ASSIGN(Model model, Model::Read(checkpoint, target));
    LS_TRY(CheckDraftShapes(checkpoint, model.Parts()));
    return model;
  }
};

// Parts that only name tensors.
inline std::vector<DraftPart> WithoutPlaces(std::vector<DraftPart> parts) {
  for (DraftPart& part : parts) part.matrix = nullptr, part.vector = nullptr;
  return parts;
}

// DraftKind::tensors of a kind whose files always hold the same ones.
template <typename Model>
std::vector<DraftPart> TensorsOf(const DraftCheckpoint&) {
  return WithoutPlaces(Model().Parts());
}

inline constexpr DrafterOption kDraftWeightsOption = {
    .flags = "--spec-draft-weights",
    .member = At<&SpeculationOptions::draft_weights>,
    .help = "type the draft model's matrices run in: q8_0 (default), q5_1, q5_0, q4_1, q4_0, bf16, f16, f32"};

template <typename Model>
Status LearnedFits(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) {
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, Model::kKind));
  return Model::CheckFit(*checkpoint, target.sizes);
}

template <typename Model>
Result<DraftMemory> LearnedMemory(const SpeculationOptions& options, const TargetFacts& target,
                                  DraftFiles& files) {
  LS_ASSIGN(const auto checkpoint, files.Draft(options.draft_model, Model::kKind));
  LS_ASSIGN(Model model, Model::Read(*checkpoint, target.sizes));
  DraftMemory memory = model.Working(options, target, DraftHeadRows(*checkpoint, target.sizes));
  memory.fixed += model.BytesToLoad(*checkpoint, options.draft_weights, *HeadIn(target.file));
  return memory;
}

// What MakeDrafter of a learned draft asks of options before any file is opened.
inline Status CheckLearned(const SpeculationOptions& options) {
  LS_TRY(CheckDraftWeights(options.draft_weights));
  return ParseTreeShape(options.tree).status();
}

inline constexpr DrafterOption kLearnedOptions[] = {kDraftModelOption, kDraftWeightsOption};

// An entry with what all learned drafts have, where `own` does not say otherwise.
template <typename Model>
constexpr DrafterEntry LearnedEntry(DrafterEntry own) {
  own.name = Model::kKind;
  if (own.options.empty()) own.options = kLearnedOptions;
  own.reads_dice = true;
  own.kind = &Model::kFile;
  own.reads = [](std::string_view architecture) { return architecture == Model::kKind; };
  if (own.check == nullptr) own.check = CheckLearned;
  own.fits = LearnedFits<Model>;
  own.memory = LearnedMemory<Model>;
  if (own.alone) return own;
  own.in_auto = Always;
  own.as_member = GrowBestAsMember;
  return own;
}

// The activations and the one layer of keys and values of a BlockForward.
inline DraftMemory BlockMemory(const DraftBlock& block, const TargetFacts& target, int64_t n_logits) {
  // And as many states that wait.
  const uint64_t states = uint64_t{BlockForward::kMaxRows} * static_cast<uint64_t>(block.shape.n_embd);
  DraftMemory memory = {.fixed =
                            DraftLane::Bytes(BlockForward::Size(block, n_logits)) + states * sizeof(float)};
  memory.kv_chunk = memory.kept_chunk =
      KvChunkBytes(DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, target.cache), 1);
  return memory;
}

// What was made of texts by the model that these options name, which is loaded.
inline std::shared_ptr<DraftKeys> LearnedKeys(const SpeculationOptions& options, const DraftContext& context,
                                              const DraftBlock& block) {
  const KvLayout layout =
      DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, context.cache->Span(0).layout);
  return context.models->Keys(options.draft_model, options.draft_weights, layout);
}

// Where the passes of a model run that these options name, which is loaded. Forward: a class with
// MakeLane(model, target). `nth`: of several that a model has. Throws std::bad_alloc.
template <typename Forward, typename Model>
std::shared_ptr<DraftLane> LearnedLane(const SpeculationOptions& options, const DraftContext& context,
                                       const Model& model, size_t nth = 0) {
  return context.models->Lane(options.draft_model, options.draft_weights, nth,
                              [&] { return Forward::MakeLane(model, *context.target->shared_parts()); });
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
