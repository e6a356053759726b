// SPDX-License-Identifier: Apache-2.0
//
// In what order the states of a row's chunks become one (docs/arithmetic.md): those of a stretch of 4,096
// absolute positions in ascending order, and stretches in ascending order.
#pragma once

#include "kernels/ops.h"

namespace longspec {

// One row and query head.
class StateMerging {
 public:
  // The row sees chunk `first` and those after it. Those before `next` were merged and kept. `open`,
  // `before`: where a state is kept of the stretch that chunk next - 1 is in, and of the stretches before it.
  StateMerging(const kernels::KernelTable& kernels, int head_dim, int first, int next, float* open,
               float* before);

  // The state of the next chunk, whose memory may be changed until Keep or Finish.
  void Add(float* state);
  void Keep();
  // All that was added, divided by its sum; zeros if that is nothing.
  void Finish(float* out);

 private:
  void MoveTo(float* memory, float*& state) const;

  const kernels::KernelTable& kernels_;
  int head_dim_, next_;
  float *kept_open_, *kept_before_;
  float *open_ = nullptr, *before_ = nullptr;  // null: none
};

}  // namespace longspec
