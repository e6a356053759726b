// SPDX-License-Identifier: Apache-2.0
//
// Where a verification rule takes its chances. Rules ask for decisions, not for numbers, so that a test can
// follow every branch with its exact probability.
#pragma once

#include <cstdint>
#include <span>

#include "base/counter_rng.h"

namespace longspec::testing {

class Coin {
 public:
  virtual ~Coin() = default;
  // True with this probability; never at 0 or below, always at 1 or above.
  virtual bool Flip(double probability) = 0;
  // An index, with probability proportional to its weight. Weights are not negative; their sum is above 0 and
  // need not be 1. An index of weight 0 is never drawn.
  virtual int Draw(std::span<const double> weights) = 0;
};

// Decisions at one absolute position, from that position's fresh numbers. Not thread-safe.
class RngCoin final : public Coin {
 public:
  RngCoin(const RngStream& stream, uint64_t position) : stream_(stream), position_(position) {}

  bool Flip(double probability) override;
  int Draw(std::span<const double> weights) override;

 private:
  RngStream stream_;
  uint64_t position_;
  uint32_t n_used_ = 0;
};

}  // namespace longspec::testing
