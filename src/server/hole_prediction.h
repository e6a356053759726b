// SPDX-License-Identifier: Apache-2.0
//
// What a hole may be filled with, as tokens for the drafter `prediction`. A pure function but for what was
// suggested lately.
#pragma once

#include "longspec/engine.h"
#include "openai/suggestions.h"

namespace longspec::server {

PredictionDraftOptions HolePrediction(const InfillText& text, const openai::Suggestions& suggestions,
                                      const Engine& engine);

}  // namespace longspec::server
