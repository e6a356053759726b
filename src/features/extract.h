// SPDX-License-Identifier: Apache-2.0
//
// From tokens to the features of feature shards: the target is run over a sequence and its last layer's keys
// and values are read back, in checkpoint layout. One thread; uses the target's team.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "kv/kv_cache.h"
#include "longspec/status.h"
#include "model/target.h"

namespace longspec {

// What the shards say of the target.
FeatureTarget DescribeTarget(const SharedParts& parts, const GgufFile& file);

// One sequence's features, owned.
struct ExtractedFeatures {
  std::vector<int32_t> positions, top_ids;
  std::vector<uint16_t> keys, values, top_log_probs;
};

// Logits of one row are as wide as the vocabulary: a pass with them has no more rows than this.
inline constexpr int kFeatureRowsWithLogits = 32;

// Adds what the last layer's cache holds of positions 0 .. n - 1, keys in checkpoint layout.
void AppendLastLayer(const SharedParts& parts, const KvCache& cache, int n, ExtractedFeatures* features);
// Adds the k most probable tokens of each row of logits.
Status AppendTopTokens(const SharedParts& parts, const TargetOutput::Segment& rows, int k,
                       ExtractedFeatures* features);

class FeatureExtractor {
 public:
  // `cache` is the target's, empty and as long as the longest sequence. `rows`: of one forward pass.
  FeatureExtractor(Target* target, std::unique_ptr<KvCache> cache, int rows, int top_k);

  // kCancelled as soon as on_rows, called after every pass with the rows it had, returns false.
  Result<ExtractedFeatures> Extract(std::span<const int32_t> tokens, const std::function<bool(int)>& on_rows);

 private:
  Status Run(std::span<const int32_t> tokens, ExtractedFeatures* features,
             const std::function<bool(int)>& on_rows);

  Target* const target_;
  const std::unique_ptr<KvCache> cache_;
  const int rows_, top_k_;
};

}  // namespace longspec
