// SPDX-License-Identifier: Apache-2.0
#include "base/dice.h"

#include <bit>

namespace longspec {

double Log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
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

double GumbelOf(uint32_t bits) {
  const double u = (static_cast<double>(bits) + 0.5) * 0x1.0p-32;
  return -Log(-Log(u));
}

uint32_t DiceBits(const std::array<uint32_t, 2>& key, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  return Philox4x32(key, {t / 64 * 16 + t % 16, 0, 0, 0})[t / 16 % 4];
}

Dice::Dice(const RngStream& stream, uint64_t position) {
  // The last word tells it from the numbers that RngStream::Uniform draws for the position.
  constexpr uint32_t kDice = 0x64696365;
  const std::array<uint32_t, 4> r = Philox4x32(
      stream.Key(), {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, kDice});
  key_ = {r[0], r[1]};
}

}  // namespace longspec
