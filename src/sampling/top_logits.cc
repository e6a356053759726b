// SPDX-License-Identifier: Apache-2.0
#include "sampling/top_logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace longspec {

namespace {

constexpr size_t kBlockOfLogits = 64;
// Logits come from all cores' caches, which no core expects.
constexpr size_t kLineFloats = 16, kAhead = 1024;

// Four at a time, in any compiler's baseline. What is not a number is not above.
bool AnyAbove(const float* x, float bound) {
  using Floats [[gnu::vector_size(16)]] = float;
  using Ints [[gnu::vector_size(16)]] = int32_t;
  const Floats bounds = {bound, bound, bound, bound};
  Ints above = {};
  for (size_t i = 0; i < kBlockOfLogits; i += 4) {
    Floats four;
    std::memcpy(&four, x + i, sizeof(four));
    above |= four > bounds;
  }
  return (above[0] | above[1] | above[2] | above[3]) != 0;
}

}  // namespace

int TopLogits(std::span<const float> logits, std::span<int32_t> tokens) {
  LS_CHECK(tokens.size() <= kMaxTopLogits);
  if (tokens.empty()) return 0;
  std::array<float, kMaxTopLogits> values;
  size_t n = 0;
  float bound = -std::numeric_limits<float>::infinity();  // only larger ones matter
  for (size_t begin = 0; begin < logits.size(); begin += kBlockOfLogits) {
    const size_t end = std::min(begin + kBlockOfLogits, logits.size());
    for (size_t i = 0; i < kBlockOfLogits; i += kLineFloats)
      __builtin_prefetch(logits.data() + begin + kAhead + i);
    if (end - begin == kBlockOfLogits && !AnyAbove(logits.data() + begin, bound)) continue;
    for (size_t i = begin; i < end; ++i) {
      if (!(logits[i] > bound)) continue;
      if (n < tokens.size()) ++n;
      size_t at = n - 1;
      for (; at > 0 && values[at - 1] < logits[i]; --at) {
        values[at] = values[at - 1];
        tokens[at] = tokens[at - 1];
      }
      values[at] = logits[i];
      tokens[at] = static_cast<int32_t>(i);
      if (n == tokens.size()) bound = values[n - 1];
    }
  }
  return static_cast<int>(n);
}

float ShareOfLargest(std::span<const float> logits, int32_t token) {
  const float largest = logits[static_cast<size_t>(token)];
  double sum = 0;
  for (const float x : logits) {
    if (x - largest > -20.0F) sum += static_cast<double>(std::exp(x - largest));
  }
  return static_cast<float>(1.0 / sum);
}

}  // namespace longspec
