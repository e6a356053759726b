// SPDX-License-Identifier: Apache-2.0
//
// Who computes on the CPU: a table of kernels and a team of threads, which runs one thing at a time.
#pragma once

#include "base/thread_team.h"
#include "kernels/ops.h"

namespace longspec {

// Borrowed.
struct CpuLane {
  const kernels::KernelTable* kernels = nullptr;
  ThreadTeam* team = nullptr;
};

}  // namespace longspec
