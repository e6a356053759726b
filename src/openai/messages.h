// SPDX-License-Identifier: Apache-2.0
//
// The messages of a chat request: who says what, text only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "longspec/generation.h"
#include "openai/errors.h"
#include "openai/fields.h"

namespace longspec::openai {

// `messages` is the value of that field. The role "developer" is "system" for the templates of open models;
// parts of a content are joined by line breaks.
std::variant<std::vector<Message>, ApiError> ParseMessages(const nlohmann::ordered_json& messages);

// The field `name` of an object: a text, or a list of parts of type "text", joined by line breaks. Mistakes
// are the object's. REQUIRES: the field is there, or that is the mistake.
void ParseTextContent(Fields& fields, std::string_view name, std::string* content);

}  // namespace longspec::openai
