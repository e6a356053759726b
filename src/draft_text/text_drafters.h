// SPDX-License-Identifier: Apache-2.0
//
// The entries of the drafters of this module, which know tokens and nothing else.
#pragma once

#include "draft/drafter_entry.h"

namespace longspec {

extern const DrafterEntry kNoneDrafter, kNgramDrafter, kPredictionDrafter, kPpmDrafter, kSuffixDrafter,
    kRecyclingDrafter, kGrammarDrafter;

}  // namespace longspec
