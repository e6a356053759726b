// SPDX-License-Identifier: Apache-2.0
//
// Sequences that the target ends itself: it is given beginnings and writes on, several at a time, and the
// features are those of the same pass. A draft is asked to foresee what its target writes, so this is the
// text to train it on; it costs about what running the target over given text does. What is written depends
// on the beginning, the seed and the sequence's index only. One thread; uses the target's team.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "features/extract.h"

namespace longspec {

struct ContinuationOptions {
  int max_tokens = 256;                      // written after a beginning at most
  std::vector<float> temperatures = {0.7F};  // sequence i has the i-th, and so on around; 0: greedy
  uint64_t seed = 1;
  int32_t end = -1;  // ends a sequence, and is written; -1: nothing does
  int at_once = 8;   // sequences of one pass
  int top_k = 0;     // of every row: of beginnings, too, if beginning_logits
  bool beginning_logits = false;
  int rows = 512;  // of a pass over a beginning without logits
};

struct Continuation {
  std::vector<int32_t> tokens;  // the beginning, and what was written
  ExtractedFeatures features;   // of all of them
};

class ContinuationWriter {
 public:
  // `new_cache` makes empty caches of the target that hold a beginning and max_tokens more.
  ContinuationWriter(Target* target, const std::function<std::unique_ptr<KvCache>()>& new_cache,
                     ContinuationOptions options);

  const ContinuationOptions& options() const { return options_; }

  // No beginning may be empty. The first has index `first_index`. kCancelled as soon as on_rows, called after
  // every pass with the rows it had, returns false.
  Result<std::vector<Continuation>> Write(std::span<const std::vector<int32_t>> beginnings,
                                          int64_t first_index, const std::function<bool(int)>& on_rows);

 private:
  struct Slot;
  Status Begin(const std::vector<int32_t>& beginning, Slot* slot, const std::function<bool(int)>& on_rows);
  Status Step(std::span<Slot*> active, const std::function<bool(int)>& on_rows);
  void Sample(const float* logits, Slot* slot) const;
  Status RunAll(std::span<const std::vector<int32_t>> beginnings, int64_t first_index,
                const std::function<bool(int)>& on_rows, std::vector<Continuation>* all);

  Target* const target_;
  const ContinuationOptions options_;
  std::vector<std::unique_ptr<KvCache>> caches_;
};

}  // namespace longspec
