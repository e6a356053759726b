// SPDX-License-Identifier: Apache-2.0
//
// The dice of one position of a sequence: for each token a number g with the Gumbel distribution. The token
// with the largest log p + g is a sample of p (Gumbel-max), and who knows the seed knows the numbers before p
// is computed: a draft may use them (docs/decoding.md). A number is a pure function of seed, sequence,
// position and token. Plain values; thread-safe.
//
//   bits(token) = word (token / 16) % 4 of Philox4x32(key, {(token / 64) * 16 + token % 16, 0, 0, 0})
//   u = (bits + 1/2) / 2^32          exact in double, never 0 or 1
//   g = -Log(-Log(u))                from -3.2 to 22.9
//
// so that 16 neighbouring tokens are one word each of 16 neighbouring counters. All in double, with Log
// of base/elementary.h: the same bits on every machine.
#pragma once

#include <array>
#include <cstdint>

#include "base/counter_rng.h"

namespace longspec {

// The Gumbel number of 32 random bits.
double GumbelOf(uint32_t bits);

// A token's random bits under a position's key.
uint32_t DiceBits(const std::array<uint32_t, 2>& key, int32_t token);

class Dice {
 public:
  // REQUIRES: stream is the sampler's own, for the numbers to be its own
  Dice(const RngStream& stream, uint64_t position);

  const std::array<uint32_t, 2>& key() const { return key_; }
  double Gumbel(int32_t token) const { return GumbelOf(DiceBits(key_, token)); }

 private:
  std::array<uint32_t, 2> key_;
};

}  // namespace longspec
