// SPDX-License-Identifier: Apache-2.0
//
// The messages of a chat request: who says what, text only.
#pragma once

#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "longspec/generation.h"
#include "openai/errors.h"

namespace longspec::openai {

// `messages` is the value of that field. The role "developer" is "system" for the templates of open models;
// parts of a content are joined by line breaks.
std::variant<std::vector<Message>, ApiError> ParseMessages(const nlohmann::ordered_json& messages);

}  // namespace longspec::openai
