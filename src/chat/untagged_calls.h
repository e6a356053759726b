// SPDX-License-Identifier: Apache-2.0
//
// Calls that models write in another way than they were shown: how they begin where the grammar is to hold
// them to the schema of a strict function. Another beginning is that of a text. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "chat/tools.h"

namespace longspec::chat {

// Whether the grammar holds them: where the model may call or not, and the schemas of strict functions, each
// of which is compiled once more for each beginning, are not too large for that.
bool HoldsUntagged(const ToolUse& use);

// Tags of xgrammar for them, each triggered by the whole of its "begin".
std::vector<nlohmann::ordered_json> UntaggedCallTags(ToolFormat format, const Tool& tool);

// Whether the grammar holds what follows `begin`, from the brace of a call to its arguments, or from the
// "<function=" to a line break.
bool IsHeldBegin(const CallForm& form, const Tool& tool, std::string_view begin);

}  // namespace longspec::chat
