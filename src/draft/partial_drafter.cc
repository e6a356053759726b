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
#include "draft/registry.h"
#include "draft/tree_width.h"
#include "kv/retrieval_cache.h"
#include "model/shared_parts.h"

namespace longspec {
namespace {

constexpr int kMostPositions = 1 << 24;
constexpr DrafterOption kPartialOptions[] = {
    {.flags = "--spec-partial-sink",
     .member = &SpeculationOptions::partial_sink,
     .help = "first positions it sees, a multiple of 16",
     .most = kMostPositions},
    {.flags = "--spec-partial-budget",
     .member = &SpeculationOptions::partial_budget,
     .help = "positions it retrieves, in blocks of 16",
     .most = kMostPositions},
    {.flags = "--spec-partial-window",
     .member = &SpeculationOptions::partial_window,
     .help = "last positions it sees, at least",
     .least = 1,
     .most = kMostPositions},
    {.flags = "--spec-partial-refresh",
     .member = &SpeculationOptions::partial_refresh,
     .help = "positions after which it retrieves anew",
     .most = kMostPositions},
    {.flags = "--spec-partial-score",
     .member = &SpeculationOptions::partial_score,
     .help = "how blocks are scored: minmax (SpecPV), quest, mean (TriForce), norm"},
    {.flags = "--spec-partial-inner",
     .member = &SpeculationOptions::partial_inner,
     .help = "who guesses what it will say: none, ppm, suffix, ngram or lm (with a draft model)"},
};

Result<BlockScore> ScoreOf(const SpeculationOptions& options) {
  return ParseBlockScore(options.partial_score, "--spec-partial-score");
}

SpeculationOptions InnerOptions(const SpeculationOptions& options) {
  SpeculationOptions inner = options;
  inner.type = options.partial_inner;
  inner.tree = {};
  return inner;
}

Status CheckPartial(const SpeculationOptions& options) {
  if (options.partial_sink % kKeyBlock != 0) {
    return InvalidArgument("--spec-partial-sink " + std::to_string(options.partial_sink) +
                           ": must be a multiple of " + std::to_string(kKeyBlock));
  }
  LS_TRY(ScoreOf(options).status());
  constexpr std::string_view kInner[] = {"none", "ppm", "suffix", "ngram", "lm"};
  if (std::ranges::count(kInner, options.partial_inner) == 0) {
    return InvalidArgument("--spec-partial-inner " + options.partial_inner +
                           ": must be none, ppm, suffix, ngram or lm");
  }
  LS_TRY(CheckDrafter(InnerOptions(options)));
  return ParseTreeWidth(options.tree).status();
}

// REQUIRES: they were checked.
RetrievalOptions RetrievalOf(const SpeculationOptions& options) {
  return {.sink = options.partial_sink,
          .budget = options.partial_budget,
          .window = options.partial_window,
          .refresh = options.partial_refresh,
          .score = *ScoreOf(options)};
}

// The working set, what is remembered of each block of the context, and what the drafter inside takes.
Result<DraftMemory> PartialMemory(const SpeculationOptions& options, const TargetFacts& target,
                                  DraftFiles& files) {
  constexpr int kSpeculated = 64;
  DraftMemory memory;
  if (options.partial_inner != "none") {
    LS_ASSIGN(memory, PlanDraftMemory(InnerOptions(options), target, files));
  }
  const auto layers = static_cast<uint64_t>(target.config.n_layer);
  const int64_t slots = int64_t{options.partial_sink} + options.partial_budget + options.partial_window +
                        options.partial_refresh + kSpeculated;
  memory.fixed += static_cast<uint64_t>(slots / kKvChunk + 1) * layers * target.cache.layer_bytes();
  const BlockScore score = RetrievalOf(options).score;
  const uint64_t numbers = score == BlockScore::kNorm   ? 1
                           : score == BlockScore::kMean ? static_cast<uint64_t>(target.cache.head_dim)
                                                        : 2 * static_cast<uint64_t>(target.cache.head_dim);
  memory.kv_chunk +=
      kKvChunk / kKeyBlock * layers * static_cast<uint64_t>(target.cache.n_kv_head) * numbers * sizeof(float);
  return memory;
}

DrafterResult MakePartial(const SpeculationOptions& options, const DraftContext& context) {
  if (context.target == nullptr || context.cache == nullptr) {
    return InvalidArgument("--spec-type partial: needs a target and the sequence's cache");
  }
  const SharedParts* parts = context.target->shared_parts();
  if (parts == nullptr || context.cache->exactness() != Exactness::kLossless) {
    return Unsupported("--spec-type partial: needs a target of known shape and a cache of all its positions");
  }
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  std::unique_ptr<Drafter> inner;
  if (options.partial_inner != "none") {
    LS_ASSIGN(inner, MakeDrafter(InnerOptions(options), context));
  }
  return std::unique_ptr<Drafter>(std::make_unique<NestedDrafter>(
      context, NestedOptions{.name = "partial", .width = width},
      MakeRetrievalCache(context.cache->Span(0).layout, parts->config->n_layer, parts->config->n_head,
                         RetrievalOf(options)),
      std::move(inner)));
}

// Of the text, no more than a half.
void SeeLess(SpeculationOptions& options, int n_tokens) {
  options.partial_sink = 0;
  options.partial_window = std::clamp(n_tokens / 8, 1, options.partial_window);
  options.partial_refresh = std::min(options.partial_refresh, 8);
  options.partial_budget = std::min(options.partial_budget, n_tokens / 4);
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
    .alone = true,
    .chain_by_default = true,
    .narrow = SeeLess,
};

}  // namespace longspec
