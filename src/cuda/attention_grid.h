// SPDX-License-Identifier: Apache-2.0
//
// What attention alone costs on a card, by its kernels' shapes: which of them a pass should take.
#pragma once

#include <vector>

namespace longspec::cuda {

struct AttentionTime {
  const char* model;
  const char* type;  // of keys and values
  int rows, context;
  int entries, ring;         // of the kernel: rows times heads of an item, stages under way
  double ms, merge_ms;       // of all layers
  double bytes, operations;  // keys and values read once; multiplications with an addition
};

// Stops to begin with new cells after `seconds`.
std::vector<AttentionTime> TimeAttention(double seconds);

}  // namespace longspec::cuda
