// SPDX-License-Identifier: Apache-2.0
#include "engine/partial_retrieval.h"

#include <string>

#include "base/status_macros.h"
#include "decode/partial_verifier.h"

namespace longspec {

Result<RetrievalOptions> PartialRetrieval(const PartialVerificationOptions& options) {
  const auto fail = [](const std::string& option, int value, const std::string& right) {
    return InvalidArgument(option + " " + std::to_string(value) + ": must be " + right);
  };
  if (options.sink < 0 || options.sink % kKeyBlock != 0) {
    return fail("--partial-sink", options.sink, "a multiple of " + std::to_string(kKeyBlock));
  }
  if (options.budget < kKeyBlock) {
    return fail("--partial-budget", options.budget, std::to_string(kKeyBlock) + " or more");
  }
  if (options.window < 1) return fail("--partial-window", options.window, "1 or more");
  if (options.refresh < 0 || (options.refresh == 0 && OtherRefreshRule() == nullptr))
    return fail("--partial-refresh", options.refresh, "1 or more, or paper");
  LS_ASSIGN(const BlockScore score, ParseBlockScore(options.score, "--partial-score"));
  LS_ASSIGN(const QueryReduction reduce, ParseQueryReduction(options.reduce, "--partial-reduce"));
  if (options.refresh != 0 && options.reduce != PartialVerificationOptions().reduce) {
    return InvalidArgument("--partial-reduce " + options.reduce +
                           ": has no effect without --partial-refresh paper: one query chooses");
  }
  return RetrievalOptions{.sink = options.sink,
                          .budget = options.budget,
                          .window = options.window,
                          .refresh = options.refresh,
                          .score = score,
                          .reduce = reduce};
}

Result<WorkingSetMemory> PlanPartialRetrieval(const PartialVerificationOptions& options,
                                              const KvLayout& layout, int n_layer, int n_head,
                                              int most_drafted) {
  if (!options.enabled) return WorkingSetMemory{};
  LS_ASSIGN(RetrievalOptions retrieval, PartialRetrieval(options));
  const int n_rows = most_drafted + 1;
  if (retrieval.refresh > 0) return PlanRetrievalCache(layout, n_layer, n_head, retrieval, n_rows);
  // The set grows by all that is accepted, and then by what one more tree accepts; all rows of a tree choose.
  retrieval.refresh = OtherRefreshRule()->most_accepted + n_rows;
  return PlanRetrievalCache(layout, n_layer, n_head, retrieval, n_rows, n_rows);
}

}  // namespace longspec
