// SPDX-License-Identifier: Apache-2.0
//
// How much a run of features will write, before it runs the target: its documents are tokenised for that.
#pragma once

#include <cstdint>
#include <optional>

#include "features/run.h"

namespace longspec {

struct FeaturePlan {
  int64_t tokens = 0;        // in the folder when the run is done, at most
  int64_t least_tokens = 0;  // fewer, if the target writes: it may end soon
  bool estimated = false;    // of some files only the beginning was counted
};

// Takes about most_ms. Of a file that has more than its part of that time the rest is taken to be like its
// beginning. Nothing if an input cannot be read twice. A document that would end the run with an error ends
// the count.
std::optional<FeaturePlan> PlanFeatures(const FeatureRunOptions& options, const FeatureTokenizer& tokenizer,
                                        double most_ms);

// Whether a disk with `free` bytes has room for the rest of the plan, of which `there` bytes are in the
// folder already. An estimate has to be a quarter too large to be plainly too large.
bool HasRoom(const FeaturePlan& plan, int64_t bytes_per_token, uint64_t there, uint64_t free);

}  // namespace longspec
