// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/emulated_tile_sums.h"

namespace longspec::kernels::testing {

TileSums emulated_tile_sums = TileSums::kDocumented;

}  // namespace longspec::kernels::testing
