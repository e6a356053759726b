// SPDX-License-Identifier: Apache-2.0
//
// Chains of drafts that read states, all of a batch at once. A slot is the beginning of a chain: a token
// whose draft knows the target's states of the tokens before it. So slots are rows 1, 2, ... of each
// sequence, and `steps` drafts on a chain stands at the token as many places after its slot's.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "train/trainee.h"

namespace longspec::train {

struct Slots {
  at::Tensor rows;            // (m) int64
  Ends ends;                  // of slots, by sequence
  std::vector<int64_t> seen;  // (m) the sequence's rows before the slot's
};
Slots MakeSlots(const Ends& ends);

// Slots that have a token `steps` after their own, and the rows of those tokens; (r) int64 each.
struct SlotsAhead {
  at::Tensor slots, rows;
};
SlotsAhead Ahead(const Ends& ends, int64_t steps);

// For every slot the row of the token `steps` on, (m), or the sequence's last row: what is computed there is
// of no meaning and must not be used.
at::Tensor RowsAhead(const Ends& ends, int64_t steps, at::Device device);

// Outputs (m, width) of all slots after `steps` by row, (n, width), zeros where there is none.
at::Tensor ByRow(const PlacedBatch& batch, const at::Tensor& outputs, int64_t steps);

}  // namespace longspec::train
