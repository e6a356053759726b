// SPDX-License-Identifier: Apache-2.0
#include "base/counter_rng.h"

namespace longspec {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
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
