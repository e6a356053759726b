// SPDX-License-Identifier: Apache-2.0
#include "verify/testing/coin.h"

#include <numeric>

#include "base/check.h"

namespace longspec::testing {

bool RngCoin::Flip(double probability) { return stream_.Uniform(position_, n_used_++) < probability; }

int RngCoin::Draw(std::span<const double> weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double wanted = stream_.Uniform(position_, n_used_++) * total;
  double cumulative = 0.0;
  int drawn = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0.0)) continue;
    drawn = static_cast<int>(i);
    cumulative += weights[i];
    if (wanted < cumulative) break;
  }
  LS_CHECK(drawn >= 0);
  return drawn;
}

}  // namespace longspec::testing
