// SPDX-License-Identifier: Apache-2.0
//
// Calls of tools in earlier turns, and their results, as a model is told of them. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "longspec/generation.h"

namespace longspec::chat {

// tool_calls of a message, as Message::more holds them: arguments as text, as they were given.
nlohmann::ordered_json HeldCalls(const nlohmann::ordered_json& tool_calls);

// Whether a message calls, or has what a call brought.
bool IsOfCalls(const Message& message);

// For templates that know of calls: arguments are values, and not text that holds some. Their numbers stay
// as they were written.
void TellCalls(std::vector<Message>& messages);
// For those that do not: as text of plain messages, in the form that ToolFormat::kGeneric has.
void SpellOutCalls(std::vector<Message>& messages);

}  // namespace longspec::chat
