// SPDX-License-Identifier: Apache-2.0
//
// The drafters MakeDrafter knows: a new one adds its check and its factory here and its name in drafter.cc. A
// check is of the options only it reads; a factory is called after it.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace longspec {

using DrafterResult = Result<std::unique_ptr<Drafter>>;

DrafterResult MakeNoneDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckNgramOptions(const SpeculationOptions& options);
DrafterResult MakeNgramDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckReplayOptions(const SpeculationOptions& options);
DrafterResult MakeReplayDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckSuffixOptions(const SpeculationOptions& options);
DrafterResult MakeSuffixDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckPpmOptions(const SpeculationOptions& options);
DrafterResult MakePpmDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckRecyclingOptions(const SpeculationOptions& options);
DrafterResult MakeRecyclingDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckMagicDecOptions(const SpeculationOptions& options);
DrafterResult MakeMagicDecDrafter(const SpeculationOptions& options, const DraftContext& context);
Status CheckLongspecOptions(const SpeculationOptions& options);
DrafterResult MakeLongspecDrafter(const SpeculationOptions& options, const DraftContext& context);

Status CheckLmOptions(const SpeculationOptions& options);
DrafterResult MakeLmDrafter(const SpeculationOptions& options, const DraftContext& context);
Status CheckPortfolioOptions(const SpeculationOptions& options);
DrafterResult MakePortfolioDrafter(const SpeculationOptions& options, const DraftContext& context);

}  // namespace longspec
