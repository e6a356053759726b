// SPDX-License-Identifier: Apache-2.0
//
// Gumbel-max sampling of a row (ops.h) without computing every token's key. A key takes two logarithms in
// double; a test in float tells most tokens from the one that wins, and only the others' keys are computed,
// by the reference.
//
// The test. Let K be the best key so far and y = (logit - largest) / temperature, which is at most 0. A
// token's key is larger only if -log(u) < exp(y - K), and -log(u) is above
//   1 - u = ((2^32 - 1 - bits) + 1/2) 2^-32 >= W 2^-31,    W = (2^32 - 1 - bits) / 2, rounded down.
// An integer t above 0, read as a float, is at least 2^(t 2^-23 - 127), as a mantissa is a chord above that
// curve; and such floats lie in the order of these integers. So a token is discarded if float(W), read as an
// integer, is at least
//   t = ((y - K) / ln 2 + 31 + 127 + kMargin) 2^23.
//
// kMargin is for rounding. K is from -3.2 (the token of the largest logit has y = 0) to 22.9, so that only
// tokens with y > -27 can win. Their t is below 2^31 and wrong by less than 3e-5 2^23: K's part and the sum
// are rounded by at most 2^6 each, and difference, scale and product by a part in 2^24 of y / ln 2 > -40.
// float(W) is wrong by a part in 2^24, and keys by 1e-13. kMargin is 30 times all that, so no token is
// discarded whose key is K or more. Other tokens never win, whatever is said of them. Where y leaves the
// range of a float, or the logit is not a number, t is the least integer (or 0, on AArch64): discarded, as is
// right.
//
// 64 neighbouring tokens have 16 counters (base/dice.h). Where none would win with the smallest -log(u), that
// of 1 - u = 2^-33, their numbers are not drawn.
//
// `Lanes` has, of 64 numbers: Equal(x, value), a bit for each that is equal; Thresholds, and ThresholdsOf(x,
// largest, scale, offset), each int(fma(x - largest, scale, offset)) to the nearest; AnyAbove(thresholds,
// limit); and Hits(thresholds, first counter, round keys), a bit for each token that may win.
//
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "kernels/reference/reference.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// Philox4x32-10 (base/counter_rng.h).
inline constexpr uint32_t kPhiloxM0 = 0xD2511F53, kPhiloxM1 = 0xCD9E8D57;
inline constexpr int kPhiloxRounds = 10;

struct RoundKeys {
  uint32_t k[kPhiloxRounds][2];
};

inline RoundKeys RoundKeysOf(const uint32_t (&key)[2]) {
  RoundKeys keys;
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.k[round][0] = key[0] + round * 0x9E3779B9U;
    keys.k[round][1] = key[1] + round * 0xBB67AE85U;
  }
  return keys;
}

inline constexpr int kTokensTogether = 64;
inline constexpr double kMargin = 1e-3;
inline constexpr double kOneOverLn2 = 1.44269504088896340736;
inline constexpr double kMantissaUnit = 1 << 23;
// The float 1/4 as an integer: bits of all ones have 1 - u = 2^-33.
inline constexpr int32_t kLeastThreshold = 125 << 23;

template <typename Lanes>
inline int GumbelArgmaxBy(const GumbelArgs& a) {
  // What the test is not proved for.
  if (!(a.temperature >= 0x1p-100 && a.temperature <= 0x1p100) || !(a.largest <= 0x1.fffffep127F)) {
    return reference::GumbelArgmax(a);
  }
  float last[kTokensTogether];  // tokens, then such that never win
  const int n_whole = a.n - a.n % kTokensTogether;
  for (int i = 0; i < kTokensTogether; ++i) {
    last[i] = n_whole + i < a.n ? a.logits[n_whole + i] : -__builtin_inff();
  }
  const auto logits_from = [&](int token) { return token < n_whole ? a.logits + token : last; };

  int best = -1;
  for (int token = 0; token < a.n && best < 0; token += kTokensTogether) {
    const uint64_t equal = Lanes::Equal(logits_from(token), a.largest);
    if (equal != 0) best = token + __builtin_ctzll(equal);
  }
  if (best < 0) return reference::GumbelArgmax(a);
  double largest = reference::GumbelKey(a, best);

  const RoundKeys keys = RoundKeysOf(a.dice);
  const auto scale = static_cast<float>(kOneOverLn2 * kMantissaUnit / a.temperature);
  const auto offset = [&] {
    return static_cast<float>((31 + 127 + kMargin - largest * kOneOverLn2) * kMantissaUnit);
  };
  for (int token = 0; token < a.n; token += kTokensTogether) {
    const typename Lanes::Thresholds thresholds =
        Lanes::ThresholdsOf(logits_from(token), a.largest, scale, offset());
    if (!Lanes::AnyAbove(thresholds, kLeastThreshold)) continue;
    for (uint64_t hits = Lanes::Hits(thresholds, static_cast<uint32_t>(token / 4), keys); hits != 0;
         hits &= hits - 1) {
      const int at = token + __builtin_ctzll(hits);
      const double key = reference::GumbelKey(a, at);
      if (!(key > largest) && !(key == largest && at < best)) continue;
      largest = key;
      best = at;
    }
  }
  return best;
}

}  // namespace
}  // namespace longspec::kernels
