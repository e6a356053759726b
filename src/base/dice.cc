// SPDX-License-Identifier: Apache-2.0
#include "base/dice.h"

#include "base/dice_functions.h"

namespace longspec {

double GumbelOf(uint32_t bits) { return dice_functions::GumbelOf(bits); }

uint32_t DiceBits(const std::array<uint32_t, 2>& key, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  return dice_functions::DiceWords(key, t / 64 * 16 + t % 16)[t / 16 % 4];
}

Dice::Dice(const RngStream& stream, uint64_t position) {
  // The last word tells it from the numbers that RngStream::Uniform draws for the position.
  constexpr uint32_t kDice = 0x64696365;
  const std::array<uint32_t, 4> r = Philox4x32(
      stream.Key(), {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, kDice});
  key_ = {r[0], r[1]};
}

}  // namespace longspec
