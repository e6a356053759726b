// SPDX-License-Identifier: Apache-2.0
//
// How well the model foretells a text, by position: what a stretch of rotary positions does to it at 2K and
// at 60K. The same bits however the text is cut into passes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "longspec/status.h"
#include "model/target.h"

namespace longspec {

// Tokens that were foretold, and minus the logarithm of the chance that each had, in nats.
struct ForetoldTokens {
  int64_t n = 0;
  double sum = 0.0, sum_of_squares = 0.0;

  void Add(double nats);
  double Mean() const;        // REQUIRES: n > 0
  double Perplexity() const;  // e to the mean
  // Of the perplexity, as if tokens were independent; 0 for one token.
  double StandardError() const;
};

struct PositionBucket {
  int from = 0, to = 0;  // positions from <= p < to
  ForetoldTokens tokens;
};

struct PerplexityResult {
  ForetoldTokens all;
  std::vector<PositionBucket> by_position;  // 0-1K, 1K-2K, 2K-4K, ... up to the last one that has tokens
  int windows = 0;
};

struct PerplexityOptions {
  int window = 0;                  // positions
  int rows = 512;                  // of a pass at most; never changes the result
  int64_t most_windows = -1;       // -1: the whole text
  std::vector<int32_t> beginning;  // tokens that each window begins with: <s>, or nothing
};

// The text is cut into windows that know nothing of each other; in each, every token but the first is
// foretold from those before it. The last window is as long as what is left, and is left out if that has no
// token to foretell. kInvalidArgument: there is nothing to foretell. kCancelled as soon as on_rows, called
// after every pass with the rows it had, returns false.
Result<PerplexityResult> MeasurePerplexity(Target& target,
                                           const std::function<std::unique_ptr<KvCache>()>& new_cache,
                                           std::span<const int32_t> tokens, const PerplexityOptions& options,
                                           const std::function<bool(int)>& on_rows);

}  // namespace longspec
