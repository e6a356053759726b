// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/emulated_launch.h"
#include "kernels/testing/emulated_runtime.h"

namespace longspec::kernels::testing {

const gpu::LaunchFunction* EmulatedRowLaunches() {
  static constexpr auto kFunctions = gpu::RowBodies::Functions<LaunchOnFibers>();
  return kFunctions.data();
}

}  // namespace longspec::kernels::testing
