// SPDX-License-Identifier: Apache-2.0
//
// The working set of a request's partial verification (decode/partial_verifier.h): what the request asks of
// it, and what memory that takes.
#pragma once

#include "draft/drafter_entry.h"
#include "kv/retrieval_cache.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

// What the options ask for; refresh 0 stands for another rule. An option that cannot be is an error that
// names it.
Result<RetrievalOptions> PartialRetrieval(const PartialVerificationOptions& options);

// What the set takes of a target of this layout, drafts of `most_drafted` tokens included; nothing where
// partial verification is off.
Result<WorkingSetMemory> PlanPartialRetrieval(const PartialVerificationOptions& options,
                                              const KvLayout& layout, int n_layer, int n_head,
                                              int most_drafted);

}  // namespace longspec
