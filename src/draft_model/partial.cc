// SPDX-License-Identifier: Apache-2.0
//
// Exact partial verification: the target on what it retrieves of its cache says how the text goes on, and the
// whole cache verifies that (draft_model/nested_drafter.h). SpecPV's cache (arXiv 2512.02337) in TriForce's
// hierarchy (arXiv 2404.11912): with an "lm" inside it is the latter.
#include "draft_model/partial.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_model/nested_drafter.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "model/shared_parts.h"

namespace longspec {

namespace {

constexpr DrafterOption kPartialOptions[] = {
    kPartialSinkOption,
    kPartialBudgetOption,
    kPartialWindowOption,
    kPartialRefreshOption,
    kPartialScoreOption,
    {.flags = "--spec-partial-inner",
     .member = At<&SpeculationOptions::partial, &PartialDraftOptions::inner>,
     .help = "who guesses what it will say: none, ppm, suffix, ngram or lm (with a draft model)"},
    {.flags = "--spec-partial-inner-n-max",
     .member = At<&SpeculationOptions::partial, &PartialDraftOptions::inner_n_max>,
     .help = "most guesses of that one a pass",
     .least = 1,
     .most = 64,
     .lacks = [](const SpeculationOptions& o) -> std::string_view {
       return o.partial.inner == "none" ? "--spec-partial-inner" : "";
     }},
};

// The query of the last token of a prompt chooses 4,096 positions by the means of blocks, the first block
// among them. There the model verifies what a small one guesses, token by token, through StreamingLLM's
// window of 256 positions, and six tokens of that are verified by the whole cache. Blocks have 16 positions,
// not 8; what is written since is seen besides, and after 4,096 positions the choice is made anew, where the
// released code ends.
constexpr DrafterPreset kPartialPresets[] = {
    {.name = "triforce",
     .of = "TriForce",
     .set =
         [](SpeculationOptions& o) {
           constexpr int kGamma = 6, kBudget = 4096, kDraftBudget = 256;
           o.partial.inner = "lm";
           o.partial.inner_n_max = 1;
           o.partial.sink = kKeyBlock;
           o.partial.budget = kBudget - kKeyBlock;
           o.partial.window = 1;
           o.partial.refresh = kBudget;
           o.partial.score = "mean";
           o.lm.sink = 16;
           o.lm.window = kDraftBudget - o.lm.sink - kGamma;
           SetNodes(kGamma, &o);
           o.dice = false;
         }},
};

bool KnowsInner(const std::string& inner) {
  constexpr std::string_view kInner[] = {"none", "ppm", "suffix", "ngram", "lm"};
  return std::ranges::find(kInner, inner) != std::end(kInner);
}

SpeculationOptions InnerOptions(const SpeculationOptions& options) {
  SpeculationOptions inner = OnlyRead(options, options.partial.inner);
  inner.tree = {};
  // SpecExtend reads the target's attention, and nobody shows that to a drafter inside another.
  inner.spec_extend.enabled = false;
  inner.spec_extend.chunks = inner.spec_extend.every = inner.spec_extend.from = 0;
  return inner;
}

std::vector<SpeculationOptions> PartsOfPartial(const SpeculationOptions& options) {
  if (options.partial.inner == "none" || !KnowsInner(options.partial.inner)) return {};
  return {InnerOptions(options)};
}

Status CheckPartial(const SpeculationOptions& options) {
  LS_TRY(CheckPartialOptions(options));
  if (!KnowsInner(options.partial.inner)) {
    return InvalidArgument("--spec-partial-inner " + options.partial.inner +
                           ": must be none, ppm, suffix, ngram or lm");
  }
  if (options.partial.inner == "lm" && options.draft_model.empty()) {
    return InvalidArgument(
        "--spec-partial-inner lm (as in triforce): needs a draft model; name its file with "
        "--spec-draft-model (-md)");
  }
  LS_TRY(CheckDrafter(InnerOptions(options)));
  return CheckTreeWidth(options);
}

// The working set's, and what the drafter inside takes.
Result<DraftMemory> PartialMemory(const SpeculationOptions& options, const TargetFacts& target,
                                  DraftFiles& files) {
  DraftMemory memory;
  if (options.partial.inner != "none") {
    LS_ASSIGN(memory, PlanDraftMemory(InnerOptions(options), target, files));
  }
  return memory += RetrievalMemory(options, target);
}

DrafterResult MakePartial(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(auto part, MakeRetrieval(options, context));
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  std::unique_ptr<Drafter> inner;
  if (options.partial.inner != "none") {
    LS_ASSIGN(inner, MakeDrafter(InnerOptions(options), context));
  }
  return std::unique_ptr<Drafter>(std::make_unique<NestedDrafter>(
      context, NestedOptions{.name = "partial", .width = width, .inner_nodes = options.partial.inner_n_max},
      std::move(part), std::move(inner)));
}

}  // namespace

constexpr DrafterEntry kPartialDrafter = {
    .name = "partial",
    .presets = kPartialPresets,
    .summary = "what the model says of the positions that it retrieves",
    .options = kPartialOptions,
    .reads_dice = true,
    .parts = PartsOfPartial,
    .check = CheckPartial,
    .memory = PartialMemory,
    .make = MakePartial,
    .chain_by_default = true,
    .narrow = SeeLess,
};

namespace {

Result<BlockScore> ScoreOf(const SpeculationOptions& options) {
  return ParseBlockScore(options.partial.score, std::string(kPartialScoreOption.name()));
}

}  // namespace

Status CheckPartialOptions(const SpeculationOptions& options) {
  if (options.partial.sink % kKeyBlock != 0) {
    return InvalidArgument("--spec-partial-sink " + std::to_string(options.partial.sink) +
                           ": must be a multiple of " + std::to_string(kKeyBlock));
  }
  return ScoreOf(options).status();
}

RetrievalOptions RetrievalOf(const SpeculationOptions& options) {
  return {.sink = options.partial.sink,
          .budget = options.partial.budget,
          .window = options.partial.window,
          .refresh = options.partial.refresh,
          .score = *ScoreOf(options)};
}

DraftMemory RetrievalMemory(const SpeculationOptions& options, const TargetFacts& target) {
  constexpr int kMostRowsOfIt = 64;
  const WorkingSetMemory memory = PlanRetrievalCache(target.cache, target.sizes.n_layer, target.sizes.n_head,
                                                     RetrievalOf(options), kMostRowsOfIt);
  return {.with_target = memory.fixed, .with_target_chunk = memory.source_chunk};
}

Result<std::unique_ptr<RetrievalCache>> MakeRetrieval(const SpeculationOptions& options,
                                                      const DraftContext& context) {
  if (context.target == nullptr || context.cache == nullptr) {
    return InvalidArgument("--spec-type " + options.type + ": needs a target and the sequence's cache");
  }
  const SharedParts* parts = context.target->shared_parts();
  if (parts == nullptr || context.cache->exactness() != Exactness::kLossless) {
    return Unsupported("--spec-type " + options.type +
                       ": needs a target of known shape and a cache of all its positions");
  }
  return MakeRetrievalCache(context.target->NewPool(context.cache->Span(0).layout, parts->sizes->n_layer, {}),
                            parts->sizes->n_head, RetrievalOf(options));
}

void SeeLess(SpeculationOptions& options, int n_tokens) {
  options.partial.sink = 0;
  options.partial.window = std::clamp(n_tokens / 8, 1, options.partial.window);
  options.partial.refresh = std::min(options.partial.refresh, 8);
  options.partial.budget = std::min(options.partial.budget, n_tokens / 4);
}

}  // namespace longspec
