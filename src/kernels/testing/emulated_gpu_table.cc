// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/emulated_gpu_table.h"

#include "kernels/gpu/table.h"
#include "kernels/tables.h"
#include "kernels/testing/fiber_device.h"

namespace longspec::kernels::testing {

const KernelTable kEmulatedGpuTable = gpu::GpuTable<FiberDevice>("cuda (emulated)", kReferenceTable);

KernelTable EmulatedProducts(gpu::ProductBody body) {
  KernelTable table = kReferenceTable;
  switch (body) {
    case gpu::ProductBody::kManyRows:
      gpu::SetMatmuls<FiberDevice, gpu::ProductBody::kManyRows>(table);
      break;
    case gpu::ProductBody::kManyRowsSmall:
      gpu::SetMatmuls<FiberDevice, gpu::ProductBody::kManyRowsSmall>(table);
      break;
    case gpu::ProductBody::kStreamedRows:
      gpu::SetMatmuls<FiberDevice, gpu::ProductBody::kStreamedRows>(table);
      break;
    case gpu::ProductBody::kMoreRows:
      gpu::SetMatmuls<FiberDevice, gpu::ProductBody::kMoreRows>(table);
      break;
    default:
      gpu::SetMatmuls<FiberDevice, gpu::ProductBody::kFewRows>(table);
  }
  return table;
}

}  // namespace longspec::kernels::testing
