// SPDX-License-Identifier: Apache-2.0
//
// What dice.h, counter_rng.h and elementary.h promise of a Gumbel number, as constant expressions: whoever
// compiles for another processor than this program's, such as a GPU, takes the same lines. All others include
// those headers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace longspec::dice_functions {

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;

constexpr double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;  // the bits of sqrt(1/2)
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  // Exponents counted from sqrt(1/2) on, so that the mantissa lies around 1.
  const uint64_t bits = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const auto e = static_cast<double>(static_cast<int64_t>(bits) >> 52);
  const auto m = std::bit_cast<double>((bits & kMantissa) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) p = p * z + 1.0 / k;
  return e * kLn2 + 2.0 * s * p;
}

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  constexpr uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kM0 * counter[0], p1 = kM1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

constexpr double GumbelOf(uint32_t bits) {
  const double u = (static_cast<double>(bits) + 0.5) * 0x1.0p-32;
  return -Log(-Log(u));
}

// Tokens 64 i + j, 16 + j, 32 + j and 48 + j, for j below 16, have the four words of counter 16 i + j.
inline constexpr int kTokensOfCounter = 4, kTokensTogether = 64;

constexpr std::array<uint32_t, 4> DiceWords(const std::array<uint32_t, 2>& key, uint32_t counter) {
  return Philox4x32(key, {counter, 0, 0, 0});
}

}  // namespace longspec::dice_functions
