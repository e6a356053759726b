// SPDX-License-Identifier: Apache-2.0
#include "sampling/logits_check.h"

#include <algorithm>
#include <limits>
#include <string>

#include "sampling/count_in_lanes.h"

namespace longspec {
namespace {

using Limits = std::numeric_limits<float>;

// False for NaN and for plus infinity.
bool IsLegal(float logit) { return logit <= Limits::max(); }

Status Refuse(uint64_t position, const std::string& what) {
  return Corrupt("the model's logits for position " + std::to_string(position) + " are " + what +
                 ": its file is probably damaged, or its numbers are too large for their types (see "
                 "cache_type_k, cache_type_v and bf16_weights)");
}

}  // namespace

Status CheckLogits(std::span<const float> logits, uint64_t position) {
  const int32_t n_illegal = CountInLanes(logits, [](float logit) { return !IsLegal(logit); });
  if (n_illegal > 0) {
    const auto first = std::find_if_not(logits.begin(), logits.end(), IsLegal);
    return Refuse(position, "not finite (" + std::to_string(n_illegal) + " of " +
                                std::to_string(logits.size()) + ", the first is " +
                                (*first > 0 ? "infinity" : "nan") + " for token " +
                                std::to_string(first - logits.begin()) + ")");
  }
  const bool possible =
      std::any_of(logits.begin(), logits.end(), [](float x) { return x >= Limits::lowest(); });
  return possible ? Status() : Refuse(position, "all minus infinity");
}

}  // namespace longspec
