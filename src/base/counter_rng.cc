// SPDX-License-Identifier: Apache-2.0
#include "base/counter_rng.h"

#include "base/dice_functions.h"

namespace longspec {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  return dice_functions::Philox4x32(key, counter);
}

std::array<uint32_t, 2> RngStream::Key() const {
  // The sequence and purpose are mixed into the key's words through one Philox call of their own, so that
  // (seed, sequence) pairs that add up to the same number do not share a stream.
  const std::array<uint32_t, 4> k =
      Philox4x32({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                 {static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32),
                  static_cast<uint32_t>(purpose), 0x6C737063});
  return {k[0], k[1]};
}

double RngStream::Uniform(uint64_t position, uint32_t draw) const {
  const std::array<uint32_t, 4> r =
      Philox4x32(Key(), {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), draw, 0});
  const uint64_t bits = (static_cast<uint64_t>(r[0]) << 32) | r[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace longspec
