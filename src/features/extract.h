// SPDX-License-Identifier: Apache-2.0
//
// From tokens to the features of feature shards: the target is run over a sequence, and nothing is written
// after it. One thread; uses the target's team.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "features/continuations.h"
#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "kv/kv_cache.h"
#include "longspec/status.h"
#include "model/target.h"

namespace longspec {

class FeatureExtractor {
 public:
  // `cache` is the target's, empty and as long as the longest sequence. `rows`: of one forward pass.
  FeatureExtractor(Target* target, std::unique_ptr<KvCache> cache, int rows, int top_k,
                   const FeatureKeep& keep = {});

  std::string arithmetic() const { return writer_.arithmetic(); }  // as ContinuationWriter's

  // kCancelled as soon as on_rows, called after every pass with the rows it had, returns false. Where nothing
  // is to be kept the target is not run. REQUIRES: there are tokens.
  Result<ExtractedFeatures> Extract(std::span<const int32_t> tokens, const std::function<bool(int)>& on_rows);

 private:
  bool KeepsNothing() const { return !writer_.options().keep.any() && writer_.options().top_k == 0; }

  ContinuationWriter writer_;
};

}  // namespace longspec
