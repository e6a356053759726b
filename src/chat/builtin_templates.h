// SPDX-License-Identifier: Apache-2.0
//
// Chat templates that have a name, the one that llama.cpp gives them: for model files that have none, or a
// wrong one. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec::chat {

// What chats of a model are written by whose file has no template.
inline constexpr std::string_view kTemplateOfAny = "chatml";

std::vector<std::string_view> BuiltinTemplateNames();

// The source of a chat template that somebody chose: by the name of a built-in one, or as Jinja.
// kInvalidArgument: it is neither.
Result<std::string> ChosenTemplate(std::string_view name_or_source);

}  // namespace longspec::chat
