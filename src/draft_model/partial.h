// SPDX-License-Identifier: Apache-2.0
//
// What drafters on a retrieval cache (kv/retrieval_cache.h) share: how the cache is asked for, checked,
// planned and made.
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/drafter_entry.h"
#include "draft_model/registry.h"
#include "kv/retrieval_cache.h"

namespace longspec {

inline constexpr int kMostPartialPositions = 1 << 24;
inline constexpr DrafterOption kPartialSinkOption = {
    .flags = "--spec-partial-sink",
    .member = At<&SpeculationOptions::partial, &PartialDraftOptions::sink>,
    .help = "first positions it sees, a multiple of 16",
    .most = kMostPartialPositions};
inline constexpr DrafterOption kPartialBudgetOption = {
    .flags = "--spec-partial-budget",
    .member = At<&SpeculationOptions::partial, &PartialDraftOptions::budget>,
    .help = "positions it retrieves, in blocks of 16",
    .most = kMostPartialPositions};
inline constexpr DrafterOption kPartialWindowOption = {
    .flags = "--spec-partial-window",
    .member = At<&SpeculationOptions::partial, &PartialDraftOptions::window>,
    .help = "last positions it sees, at least",
    .least = 1,
    .most = kMostPartialPositions};
inline constexpr DrafterOption kPartialRefreshOption = {
    .flags = "--spec-partial-refresh",
    .member = At<&SpeculationOptions::partial, &PartialDraftOptions::refresh>,
    .help = "positions after which it retrieves anew",
    .most = kMostPartialPositions};
inline constexpr DrafterOption kPartialScoreOption = {
    .flags = "--spec-partial-score",
    .member = At<&SpeculationOptions::partial, &PartialDraftOptions::score>,
    .help = "how blocks are scored: minmax (SpecPV), quest, mean (TriForce), norm"};

// What these must be besides in their ranges.
Status CheckPartialOptions(const SpeculationOptions& options);

// REQUIRES: they were checked, and so below.
RetrievalOptions RetrievalOf(const SpeculationOptions& options);
// The working set, and what is remembered of each block of the context.
DraftMemory RetrievalMemory(const SpeculationOptions& options, const TargetFacts& target);
// Of the sequence's cache, which must have all positions, and of a target whose shape is known.
Result<std::unique_ptr<RetrievalCache>> MakeRetrieval(const SpeculationOptions& options,
                                                      const DraftContext& context);

// DrafterEntry::narrow: of a text of so many tokens no more than a half is seen.
void SeeLess(SpeculationOptions& options, int n_tokens);

}  // namespace longspec
