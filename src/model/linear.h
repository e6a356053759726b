// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of a forward pass, shared out over a thread team. Several products of the same input go
// together, so that no barrier stands between them. How the work is cut never changes a bit of the result.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_team.h"
#include "kernels/ops.h"

namespace longspec {

// Rows of activations, in the forms the weights ask for.
struct Activations {
  const float* f32 = nullptr;            // (n_rows, width)
  const kernels::Q8Block* q8 = nullptr;  // (n_rows, width / 32); null if no weight multiplies in q8
  // (n_rows, width / 256), width a multiple of 256; null if no weight multiplies in q8k
  const kernels::Q8KBlock* q8k = nullptr;
  const uint16_t* bf16 =
      nullptr;  // (n_rows, width), width a multiple of 32; null if no weight multiplies in bf16
  int width = 0;
};

struct LinearJob {
  const kernels::PackedMatrix* w = nullptr;
  float* y = nullptr;  // (n_rows, w->n_out)
  bool add = false;    // y += instead of y =
};

// This worker's part of all jobs, claimed run by run: between two barriers there may be one RunLinear and no
// other use of Worker::Claim. The outputs are whole after the next barrier.
void RunLinear(const kernels::KernelTable& kernels, ThreadTeam::Worker& worker,
               std::span<const LinearJob> jobs, const Activations& x, int n_rows);

}  // namespace longspec
