// SPDX-License-Identifier: Apache-2.0
//
// JSON from strangers: read with limits, so that no text costs more memory or stack than a request may.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "openai/errors.h"

namespace longspec::openai {

struct JsonLimits {
  size_t bytes = size_t{64} << 20;
  int nesting = 64;                    // containers within each other
  size_t values = size_t{4} << 20;     // a value takes up to about 70 bytes
  size_t keys = 10'000;                // of one object: they are looked for one by one
  size_t compared_keys = 100'000'000;  // by looking for keys, in all objects: about a second
};

// The value of a whole text (json/json_text.h), with the keys of objects in their order, which schemas mean
// something by. Half a surrogate pair ("\ud83d" alone) is U+FFFD.
std::variant<nlohmann::ordered_json, ApiError> ParseJson(std::string_view text,
                                                         const JsonLimits& limits = {});

// The value of a text that DumpJson wrote.
nlohmann::ordered_json LoadJson(std::string_view text);

// A value for an error message: numbers and short strings as they are, others by their kind ("a list").
std::string Describe(const nlohmann::ordered_json& value);

// On one line, from any text: what is no UTF-8 becomes U+FFFD, and integers are whole (json/json_text.h).
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace longspec::openai
