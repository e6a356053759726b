// SPDX-License-Identifier: Apache-2.0
//
// JSON from strangers: read with limits, so that no text costs more memory or stack than it may. Pure
// functions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

namespace longspec {

struct JsonLimits {
  size_t bytes = size_t{64} << 20;
  int nesting = 64;                    // containers within each other
  size_t values = size_t{4} << 20;     // a value takes up to about 70 bytes
  size_t keys = 10'000;                // of one object: they are looked for one by one
  size_t compared_keys = 100'000'000;  // by looking for keys, in all objects: about a second
};

struct JsonRefusal {
  bool is_too_much = false;  // a limit; else it is no JSON
  std::string message;       // "more than 64 brackets within each other"; "not JSON: a mistake at byte 7"
};

// The value of a whole text (json/json_text.h), with the keys of objects in their order, which schemas mean
// something by. Half a surrogate pair ("\ud83d" alone) is U+FFFD.
std::variant<nlohmann::ordered_json, JsonRefusal> ReadBoundedJson(std::string_view text,
                                                                  const JsonLimits& limits = {});

}  // namespace longspec
