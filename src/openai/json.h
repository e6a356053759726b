// SPDX-License-Identifier: Apache-2.0
//
// JSON from strangers: read with limits, so that no text costs more memory or stack than a request may.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "json/bounded_json.h"
#include "json/json_text.h"
#include "openai/errors.h"

namespace longspec::openai {

// As ReadBoundedJson does it.
std::variant<nlohmann::ordered_json, ApiError> ParseJson(std::string_view text,
                                                         const JsonLimits& limits = {});

// A value for an error message: numbers and short strings as they are, others by their kind ("a list").
std::string Describe(const nlohmann::ordered_json& value);

// On one line, from any text: what is no UTF-8 becomes U+FFFD, and integers are whole (json/json_text.h).
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace longspec::openai
