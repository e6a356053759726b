// SPDX-License-Identifier: Apache-2.0
//
// Sequences that the target ends itself: it is given beginnings and writes on, several at a time, and the
// features are those of the same passes, which are rounds without drafts (decode/batch_decoder.h). A draft is
// asked to foresee what its target writes, so this is the text to train it on; it costs about what running
// the target over given text does. What is written depends on the beginning, the seed and the sequence's
// index only. One thread; uses the target's team.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decode/batch_decoder.h"
#include "formats/feature_shard.h"
#include "kv/kv_cache.h"
#include "longspec/status.h"
#include "model/target.h"

namespace longspec {

// Logits of one row are as wide as the vocabulary: a pass with those of every row has no more rows than this.
inline constexpr int kFeatureRowsWithLogits = 32;

struct ContinuationOptions {
  int max_tokens = 256;                      // written after a beginning at most; 0: only features
  std::vector<float> temperatures = {0.7F};  // sequence i has the i-th, and so on around; 0: greedy
  uint64_t seed = 1;
  std::function<bool(int32_t)> ends;  // whether a token ends a sequence, and is written; null: none does
  int at_once = 32;                   // sequences that are under way, each with a cache
  int top_k = 0;                      // of every row: of beginnings, too, if beginning_logits
  bool beginning_logits = false;
  int rows = 512;         // of a pass at most; the target allows as many
  FeatureKeep keep = {};  // layers must be the target's
};

// One sequence's features, owned.
struct ExtractedFeatures {
  std::vector<int32_t> positions, top_ids;
  std::vector<uint16_t> top_log_probs;
  FeatureTensors<std::vector<uint16_t>> kept;
};

struct WrittenContinuation {
  std::vector<int32_t> tokens;  // the beginning, and what was written
  ExtractedFeatures features;   // of all of them
};

class ContinuationWriter {
 public:
  // `new_cache` makes empty caches of the target that hold a beginning and max_tokens more.
  ContinuationWriter(Target* target, const std::function<std::unique_ptr<KvCache>()>& new_cache,
                     ContinuationOptions options);

  const ContinuationOptions& options() const { return options_; }
  // The options by which target and caches compute in another way than by default, as the program has them.
  std::string arithmetic() const;

  // No beginning may be empty. The first has index `first_index`. kCancelled as soon as on_rows, called after
  // every pass with the rows it had, returns false.
  Result<std::vector<WrittenContinuation>> Write(std::span<const std::vector<int32_t>> beginnings,
                                                 int64_t first_index,
                                                 const std::function<bool(int)>& on_rows);

 private:
  struct Slot;
  Status Pass(std::vector<std::unique_ptr<Slot>>& slots, const std::function<bool(int)>& on_rows);
  Status RunAll(std::span<const std::vector<int32_t>> beginnings, int64_t first_index,
                const std::function<bool(int)>& on_rows, std::vector<WrittenContinuation>* all);

  Target* const target_;
  const ContinuationOptions options_;
  const bool all_logits_;
  const int rows_;  // of a pass at most
  BatchDecoder decoder_;
  std::vector<std::unique_ptr<KvCache>> caches_;
};

}  // namespace longspec
