// SPDX-License-Identifier: Apache-2.0
//
// What a sampler may be told, for tests of equality.
#pragma once

#include <string>
#include <vector>

#include "decode/testing/generate.h"

namespace longspec::testing {

// Greedy, cool, as it is and hot; filtered by default, unfiltered, and with penalties and a bias. Seeds make
// no difference where it is greedy.
inline std::vector<SamplingOptions> EverySampling(const std::vector<uint64_t>& seeds) {
  std::vector<SamplingOptions> all;
  for (const float temperature : {0.0F, 0.7F, 1.0F, 1.5F}) {
    for (const uint64_t seed : seeds) {
      SamplingOptions unfiltered = Temperature(temperature, seed);
      unfiltered.top_k = 0;
      unfiltered.top_p = 1;
      unfiltered.min_p = 0;
      all.insert(all.end(), {Temperature(temperature, seed), unfiltered, AllPenalties(temperature, seed)});
      if (temperature <= 0) break;
    }
  }
  return all;
}

inline std::string Describe(const SamplingOptions& sampling) {
  return "temp " + std::to_string(sampling.temperature) + ", top-k " + std::to_string(sampling.top_k) +
         ", seed " + std::to_string(*sampling.seed);
}

}  // namespace longspec::testing
