// SPDX-License-Identifier: Apache-2.0
//
// Scales and minima of a super-block of Q4_K or Q5_K: eight pairs of six bits each in twelve bytes.
#pragma once

#include <cstdint>

namespace longspec {

struct ScaleMin {
  int scale;  // 0..63
  int min;    // 0..63
};

// Scale and minimum of sub-block s. The first four pairs lie in the low six bits of
// bytes 0..7; the last four have their low nibbles in bytes 8..11 and borrow the top two bits of bytes 0..7.
inline ScaleMin UnpackScaleMin(const uint8_t (&packed)[12], int s) {
  if (s < 4) return {packed[s] & 63, packed[s + 4] & 63};
  return {(packed[s + 4] & 0xF) | ((packed[s - 4] >> 6) << 4),
          (packed[s + 4] >> 4) | ((packed[s] >> 6) << 4)};
}

// The inverse, for all eight sub-blocks.
inline void PackScaleMins(const ScaleMin (&pairs)[8], uint8_t (&packed)[12]) {
  for (int s = 0; s < 4; ++s) {
    const ScaleMin& low = pairs[s];
    const ScaleMin& high = pairs[s + 4];
    packed[s] = static_cast<uint8_t>(low.scale | ((high.scale >> 4) << 6));
    packed[s + 4] = static_cast<uint8_t>(low.min | ((high.min >> 4) << 6));
    packed[s + 8] = static_cast<uint8_t>((high.scale & 0xF) | ((high.min & 0xF) << 4));
  }
}

}  // namespace longspec
