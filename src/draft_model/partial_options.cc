// SPDX-License-Identifier: Apache-2.0
#include "draft_model/partial_options.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "model/shared_parts.h"

namespace longspec {
namespace {

Result<BlockScore> ScoreOf(const SpeculationOptions& options) {
  return ParseBlockScore(options.partial_score, std::string(kPartialScoreOption.name()));
}

}  // namespace

Status CheckPartialOptions(const SpeculationOptions& options) {
  if (options.partial_sink % kKeyBlock != 0) {
    return InvalidArgument("--spec-partial-sink " + std::to_string(options.partial_sink) +
                           ": must be a multiple of " + std::to_string(kKeyBlock));
  }
  return ScoreOf(options).status();
}

RetrievalOptions RetrievalOf(const SpeculationOptions& options) {
  return {.sink = options.partial_sink,
          .budget = options.partial_budget,
          .window = options.partial_window,
          .refresh = options.partial_refresh,
          .score = *ScoreOf(options)};
}

DraftMemory RetrievalMemory(const SpeculationOptions& options, const TargetFacts& target) {
  constexpr int kMostRowsOfIt = 64;
  const WorkingSetMemory memory = PlanRetrievalCache(
      target.cache, target.config.n_layer, target.config.n_head, RetrievalOf(options), kMostRowsOfIt);
  return {.fixed = memory.fixed, .kv_chunk = memory.source_chunk};
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
  return MakeRetrievalCache(context.cache->Span(0).layout, parts->config->n_layer, parts->config->n_head,
                            RetrievalOf(options));
}

void SeeLess(SpeculationOptions& options, int n_tokens) {
  options.partial_sink = 0;
  options.partial_window = std::clamp(n_tokens / 8, 1, options.partial_window);
  options.partial_refresh = std::min(options.partial_refresh, 8);
  options.partial_budget = std::min(options.partial_budget, n_tokens / 4);
}

}  // namespace longspec
