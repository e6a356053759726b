// SPDX-License-Identifier: Apache-2.0
//
// The drafters MakeDrafter knows: a new one adds its factory here and its name in drafter.cc. A factory
// checks the options only it reads.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace longspec {

Result<std::unique_ptr<Drafter>> MakeNoneDrafter(const SpeculationOptions& options);
Result<std::unique_ptr<Drafter>> MakeNgramDrafter(const SpeculationOptions& options);
Result<std::unique_ptr<Drafter>> MakeReplayDrafter(const SpeculationOptions& options);

}  // namespace longspec
