// SPDX-License-Identifier: Apache-2.0
//
// How emulated tiles sum products: as documented, or as a CPU might that does something else.
#pragma once

#include <cstdint>

namespace longspec::kernels::testing {

enum class TileSums : uint8_t {
  kDocumented,
  kInOrder,     // every product to the same sum, one after the other
  kPairs,       // as VDPBF16PS does
  kAddedApart,  // the two sums one after the other to the third
  kUnflushed,   // denormals kept
};

extern TileSums emulated_tile_sums;  // not for several threads

}  // namespace longspec::kernels::testing
