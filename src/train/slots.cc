// SPDX-License-Identifier: Apache-2.0
#include "train/slots.h"

#include <algorithm>

namespace longspec::train {
namespace {

// Calls visit(row, begin, end) for each slot in order.
template <typename Visit>
void ForEachSlot(const Ends& ends, const Visit& visit) {
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t row = begin + 1; row < end; ++row) visit(row, begin, end);
    begin = end;
  }
}

}  // namespace

Slots MakeSlots(const Ends& ends) {
  std::vector<int64_t> rows;
  Slots slots;
  ForEachSlot(ends, [&](int64_t row, int64_t begin, int64_t) {
    rows.push_back(row);
    slots.seen.push_back(row - begin);
  });
  int64_t begin = 0, n = 0;
  for (const int64_t end : ends) {
    slots.ends.push_back(n += std::max<int64_t>(0, end - begin - 1));
    begin = end;
  }
  slots.rows = at::tensor(rows, at::kLong);
  return slots;
}

SlotsAhead Ahead(const Ends& ends, int64_t steps) {
  std::vector<int64_t> slots, rows;
  int64_t slot = 0;
  ForEachSlot(ends, [&](int64_t row, int64_t, int64_t end) {
    if (row + steps < end) {
      slots.push_back(slot);
      rows.push_back(row + steps);
    }
    ++slot;
  });
  return {at::tensor(slots, at::kLong), at::tensor(rows, at::kLong)};
}

at::Tensor RowsAhead(const Ends& ends, int64_t steps, at::Device device) {
  std::vector<int64_t> rows;
  ForEachSlot(ends,
              [&](int64_t row, int64_t, int64_t end) { rows.push_back(std::min(row + steps, end - 1)); });
  return at::tensor(rows, at::kLong).to(device);
}

at::Tensor ByRow(const PlacedBatch& batch, const at::Tensor& outputs, int64_t steps) {
  const at::Device device = outputs.device();
  const SlotsAhead ahead = Ahead(batch.ends, steps);
  return at::zeros({batch.n(), outputs.size(1)}, outputs.options())
      .index_copy_(0, ahead.rows.to(device), outputs.index_select(0, ahead.slots.to(device)));
}

}  // namespace longspec::train
