// SPDX-License-Identifier: Apache-2.0
//
// What form a call has whose arguments stand between tags (chat/tagged_arguments.h), as a structural tag of
// xgrammar. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "chat/tools.h"

namespace longspec::chat {

// What the arguments' schema asks for and this form is not held to ("minimum of size", where size may be a
// text or a number), since texts stand there as they are, up to the closing tag; empty: it is held to all.
std::string RuleNotKept(const Tool& tool);

// A tag for calls of `tool`, its arguments in the order in which the schema lists them.
nlohmann::ordered_json TaggedCallTag(const Tool& tool);

}  // namespace longspec::chat
