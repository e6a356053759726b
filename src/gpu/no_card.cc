// SPDX-License-Identifier: Apache-2.0
//
// What a program is linked with that was built without CUDA.
#include "kernels/gpu/runtime.h"

namespace longspec::kernels::gpu {

Result<std::shared_ptr<Runtime>> OpenCard(int /*index*/) {
  return Unsupported(
      "--device: this program was built without CUDA and runs on the CPU alone (docs/cuda.md says how it is "
      "built with it)");
}

}  // namespace longspec::kernels::gpu
