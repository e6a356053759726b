// SPDX-License-Identifier: Apache-2.0
//
// How long an evaluation will still take, going by what it has done. Pure functions.
#pragma once

#include <cstddef>

namespace longspec {

// What cells that share prompts of `length` tokens cost, in units of their own: prefill grows a little faster
// than the length, the rest with the number of cells.
double GroupWeight(int length, size_t n_cells);

// What is left at the speed so far; negative while nothing is done.
double EtaMs(double elapsed_ms, double weight_done, double weight_total);

}  // namespace longspec
