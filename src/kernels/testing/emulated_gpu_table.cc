// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/emulated_gpu_table.h"

#include "kernels/gpu/table.h"
#include "kernels/tables.h"
#include "kernels/testing/fiber_device.h"

namespace longspec::kernels::testing {

const KernelTable kEmulatedGpuTable = gpu::GpuTable<FiberDevice>("cuda (emulated)", kReferenceTable);

}  // namespace longspec::kernels::testing
