// SPDX-License-Identifier: Apache-2.0
//
// Exact partial verification: the target on what it retrieves of its cache says how the text goes on, and the
// whole cache verifies that (draft/nested_drafter.h). SpecPV's cache (arXiv 2512.02337; research: specpv.md)
// in TriForce's hierarchy (arXiv 2404.11912; research: baselines.md 3.3): with an "lm" inside it is the
// latter.
#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "draft/nested_drafter.h"
#include "draft/partial_options.h"
#include "draft/registry.h"
#include "draft/tree_width.h"

namespace longspec {
namespace {

constexpr DrafterOption kPartialOptions[] = {
    kPartialSinkOption,
    kPartialBudgetOption,
    kPartialWindowOption,
    kPartialRefreshOption,
    kPartialScoreOption,
    {.flags = "--spec-partial-inner",
     .member = &SpeculationOptions::partial_inner,
     .help = "who guesses what it will say: none, ppm, suffix, ngram or lm (with a draft model)"},
};

SpeculationOptions InnerOptions(const SpeculationOptions& options) {
  SpeculationOptions inner = options;
  inner.type = options.partial_inner;
  inner.tree = {};
  // SpecExtend reads the target's attention, and nobody shows that to a drafter inside another.
  inner.spec_extend = false;
  inner.spec_extend_chunks = 0;
  return inner;
}

Status CheckPartial(const SpeculationOptions& options) {
  LS_TRY(CheckPartialOptions(options));
  constexpr std::string_view kInner[] = {"none", "ppm", "suffix", "ngram", "lm"};
  if (std::ranges::count(kInner, options.partial_inner) == 0) {
    return InvalidArgument("--spec-partial-inner " + options.partial_inner +
                           ": must be none, ppm, suffix, ngram or lm");
  }
  LS_TRY(CheckDrafter(InnerOptions(options)));
  return ParseTreeWidth(options.tree).status();
}

// The working set's, and what the drafter inside takes.
Result<DraftMemory> PartialMemory(const SpeculationOptions& options, const TargetFacts& target,
                                  DraftFiles& files) {
  DraftMemory memory;
  if (options.partial_inner != "none") {
    LS_ASSIGN(memory, PlanDraftMemory(InnerOptions(options), target, files));
  }
  return memory += RetrievalMemory(options, target);
}

DrafterResult MakePartial(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(auto part, MakeRetrieval(options, context));
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  std::unique_ptr<Drafter> inner;
  if (options.partial_inner != "none") {
    LS_ASSIGN(inner, MakeDrafter(InnerOptions(options), context));
  }
  return std::unique_ptr<Drafter>(std::make_unique<NestedDrafter>(
      context, NestedOptions{.name = "partial", .width = width}, std::move(part), std::move(inner)));
}

}  // namespace

constexpr DrafterEntry kPartialDrafter = {
    .name = "partial",
    .aliases = {"triforce"},
    .summary = "what the model says of the positions that it retrieves",
    .options = kPartialOptions,
    .check = CheckPartial,
    .memory = PartialMemory,
    .make = MakePartial,
    .chain_by_default = true,
    .narrow = SeeLess,
};

}  // namespace longspec
