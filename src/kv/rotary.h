// SPDX-License-Identifier: Apache-2.0
//
// How a cache turns keys to other positions than those for which they were computed.
#pragma once

#include <functional>

#include "kernels/ops.h"

namespace longspec {

struct Rotary {
  const kernels::KernelTable* kernels = nullptr;
  kernels::RopePairing pairing = kernels::RopePairing::kAdjacent;
  int n_rot = 0;
  double magnitude = 1.0;  // the factor in row
  // Fills (n_rot / 2, 2) cosines and sines of a position, a factor included.
  std::function<void(int position, float* cos_sin)> row;
};

}  // namespace longspec
