// SPDX-License-Identifier: Apache-2.0
//
// How errors look on the wire.
#pragma once

#include <nlohmann/json.hpp>

#include "openai/errors.h"

namespace longspec::wire {

using ErrorForm = nlohmann::ordered_json (*)(const openai::ApiError&, const nlohmann::ordered_json& more);

// {"error": {"code": 400, "message", "type", "param"}} and `more` beside them: llama.cpp's form, whose names
// OpenAI's clients read, too.
nlohmann::ordered_json ErrorBody(const openai::ApiError& error, const nlohmann::ordered_json& more = {});

}  // namespace longspec::wire
