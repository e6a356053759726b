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

// The value of a whole text, with the keys of objects in their order, which schemas mean something by. Of a
// key that an object has twice, the last counts. Half a surrogate pair ("\ud83d" alone) is U+FFFD.
std::variant<nlohmann::ordered_json, ApiError> ParseJson(std::string_view text,
                                                         const JsonLimits& limits = {});

// A value for an error message: numbers and short strings as they are, others by their kind ("a list").
std::string Describe(const nlohmann::ordered_json& value);

// On one line, from any text: what is no UTF-8 becomes U+FFFD.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace longspec::openai
