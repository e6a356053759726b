// SPDX-License-Identifier: Apache-2.0
#include "eval/eta.h"

#include <algorithm>

namespace longspec {

double GroupWeight(int length, size_t n_cells) {
  const double keys = length;
  return keys * (1 + keys / 16384) + 400.0 * static_cast<double>(n_cells);
}

double EtaMs(double elapsed_ms, double weight_done, double weight_total) {
  if (!(weight_done > 0)) return -1;
  return elapsed_ms / weight_done * std::max(0.0, weight_total - weight_done);
}

}  // namespace longspec
