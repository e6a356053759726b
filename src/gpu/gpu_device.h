// SPDX-License-Identifier: Apache-2.0
//
// A card as a device that models run on (model/device.h), and which device an option asks for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/gpu/runtime.h"
#include "longspec/status.h"
#include "model/device.h"

namespace longspec {

// `kernels` and `threads`, as MakeCpuDevice has them, are the CPU's that drafts run on.
Result<std::unique_ptr<Device>> MakeGpuDevice(std::shared_ptr<kernels::gpu::Runtime> card,
                                              std::string_view kernels, int threads);

// "cpu", "cuda" (the first card), "cuda:N", or "auto": the first card if there is one that can be used, else
// the CPU. kInvalidArgument names --device; why a card cannot be used is OpenCard's message.
Result<std::unique_ptr<Device>> MakeDevice(const std::string& name, std::string_view kernels, int threads);

}  // namespace longspec
