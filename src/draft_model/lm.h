// SPDX-License-Identifier: Apache-2.0
//
// A second, smaller language model that drafts for a target with the same vocabulary. Its weights are
// immutable, but like every Target it runs one forward pass at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/kv_span.h"
#include "formats/gguf.h"
#include "longspec/status.h"
#include "model/shared_parts.h"
#include "model/target.h"
#include "model/transformer.h"
#include "network/model_spec.h"

namespace longspec {

struct LmModel {
  std::string path;
  ModelSpec spec;
  std::vector<int32_t> vocab;      // ascending: the token of each logit; empty: logit i is of token i
  std::vector<int32_t> stand_ins;  // by the target's tokens: what it reads for them; empty: the token itself
  // Tokens that it has in common with the target: those below. Others, with which one of both is padded, it
  // neither proposes nor is asked about.
  int n_shared = 0;
  std::unique_ptr<Target> target;
};

// How a draft's keys and values lie: in the target's types, or in f16 where its heads cannot be stored in
// them.
KvLayout LmCacheLayout(const ModelSizes& draft, const KvLayout& target);

// Rows of one forward pass of a draft model: prefill in steps of so many, and the largest tree.
inline constexpr int kLmMaxRows = 512;

// `tokens`: the target's vocabulary. What does not fit is refused.
Result<std::shared_ptr<const LmModel>> LoadLmModel(const std::shared_ptr<const GgufFile>& draft,
                                                   const SharedParts& target,
                                                   const std::vector<std::string>& tokens,
                                                   const WeightsCacheOptions& weights_cache);

}  // namespace longspec
