// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_table.h"
#include "cuda/table_device.h"
#include "kernels/gpu/table.h"
#include "kernels/tables.h"

namespace longspec::cuda {

const kernels::KernelTable& CudaTable() {
  static const kernels::KernelTable table =
      kernels::gpu::GpuTable<TableDevice>("cuda", kernels::kReferenceTable);
  return table;
}

std::string NoCard() { return WhyNoDevice(); }

}  // namespace longspec::cuda
