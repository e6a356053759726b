// SPDX-License-Identifier: Apache-2.0
//
// What form the arguments of a call have that are an object of JSON, as an element of a structural tag.
#pragma once

#include <nlohmann/json.hpp>

#include "chat/tools.h"

namespace longspec::chat {

// Where the schema of a function that is not strict cannot be kept to, any object will do.
inline nlohmann::ordered_json ArgumentsForm(const Tool& tool) {
  nlohmann::ordered_json form = {{"type", "json_schema"}, {"json_schema", tool.parameters}};
  if (!tool.strict) form["otherwise"] = {{"type", "object"}};
  return form;
}

}  // namespace longspec::chat
