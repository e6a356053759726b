// SPDX-License-Identifier: Apache-2.0
#include "cuda/card_launch.h"

namespace longspec::cuda {

const kernels::gpu::LaunchFunction* CardRowLaunches() {
  static const auto functions = kernels::gpu::RowBodies::Functions<LaunchOnCard>();
  return functions.data();
}

}  // namespace longspec::cuda
