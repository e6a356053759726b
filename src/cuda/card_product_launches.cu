// SPDX-License-Identifier: Apache-2.0
#include "cuda/card_launch.h"

namespace longspec::cuda {

const kernels::gpu::LaunchFunction* CardProductLaunches() {
  static const auto functions = kernels::gpu::ProductBodies::Functions<LaunchOnCard>();
  return functions.data();
}

}  // namespace longspec::cuda
