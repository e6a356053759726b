// SPDX-License-Identifier: Apache-2.0
//
// How many logits of a row are so. Counted in lanes, which compilers turn into vectors: to go through all of
// a row is faster than to stop at the first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace longspec {

template <typename Predicate>
int32_t CountInLanes(std::span<const float> logits, const Predicate& is_so) {
  constexpr size_t kLanes = 16;  // independent counts
  std::array<int32_t, kLanes> counts{};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) counts[lane] += is_so(logits[i + lane]) ? 1 : 0;
  }
  for (; i < logits.size(); ++i) counts[0] += is_so(logits[i]) ? 1 : 0;
  return std::accumulate(counts.begin(), counts.end(), 0);
}

}  // namespace longspec
