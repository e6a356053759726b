// SPDX-License-Identifier: Apache-2.0
//
// SpeculationOptions::tree of drafters whose trees have one parameter, how many continuations they hold.
#pragma once

#include <string>

#include "longspec/status.h"

namespace longspec {

// "" and "chain": 1; a number from 1 to 64: itself.
Result<int> ParseTreeWidth(const std::string& tree);

}  // namespace longspec
