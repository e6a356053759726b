// SPDX-License-Identifier: Apache-2.0
//
// The card that tests run on: an emulated one, or in programs of src/cuda/ a real one.
#pragma once

#include <memory>

#include "kernels/gpu/runtime.h"

namespace longspec::kernels::testing {

std::shared_ptr<gpu::Runtime> CardUnderTest();

}  // namespace longspec::kernels::testing
