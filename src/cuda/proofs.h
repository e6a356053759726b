// SPDX-License-Identifier: Apache-2.0
//
// What a card is asked about all numbers there are, beside the reference.
#pragma once

#include <cstdint>

namespace longspec::cuda {

struct Comparison {
  uint64_t compared = 0, different = 0;
  uint32_t first_different = 0;  // its bits
};

// All halves widened, and rounded back.
Comparison CompareHalves();
// exp of all floats in steps of `step`, on `n_threads` of the host. NaN may have any bits.
Comparison CompareExp(uint32_t step, int n_threads);

}  // namespace longspec::cuda
