// SPDX-License-Identifier: Apache-2.0
//
// A block of a quantised type as the integers that packed matrices keep (tensor/weight_format.h).
#pragma once

#include <cstdint>

namespace longspec {

// What the type's packed format has no use for is not set, nor is what lies beyond a block of 32.
struct StoredBlock {
  uint8_t quants[256];  // w + the format's offset, or codes
  uint16_t scale;       // f16 bits, as is the minimum; or an exponent
  uint16_t minimum;
  uint8_t factors[8][2];  // of the scale: for each block of 32, or for each half of it
  uint8_t minimum_factors[8];
};

}  // namespace longspec
