// SPDX-License-Identifier: Apache-2.0
//
// A kernel table whose functions bring their arguments to a device, launch bodies there and bring the results
// back: the way to compare bodies with the reference, and nothing that is fast. `Device` is
// testing::FiberDevice or cuda::TableDevice:
//   In<T>(host, n).get()        what the device reads
//   InOut<T>(host, n).get()     the same, and what it has become comes back at the end of the scope
//   Scratch<T>(n).get()         of any content
//   Launch<Body>(args)          in the order of the calls
#pragma once

#include "kernels/gpu/attention_table.h"
#include "kernels/gpu/choice_table.h"
#include "kernels/gpu/elementwise_table.h"
#include "kernels/gpu/matmul_table.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// What has no body is `rest`'s: "bf16" and "bf16-amx" are the orders of CPUs' instructions.
template <typename Device>
KernelTable GpuTable(const char* name, const KernelTable& rest) {
  KernelTable table = rest;
  table.name = name;
  SetMatmuls<Device>(table);
  SetElementwise<Device>(table);
  SetChoice<Device>(table);
  SetAttention<Device>(table);
  return table;
}

}  // namespace longspec::kernels::gpu
