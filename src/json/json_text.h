// SPDX-License-Identifier: Apache-2.0
//
// JSON to values and back, with integers whole. One that 64 bits do not hold would become a double: here it
// is a value of the kind `binary`, which JSON has none of, and holds its digits. Pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace longspec {

struct JsonMistake {
  size_t byte = 0;  // where it is, from 1 on
  bool number_out_of_range = false;
  bool too_deep = false;
};

// Told of containers that begin and end, and of keys, with the number of containers that are open and the
// name of the key; for limits, by throwing.
using JsonWatch =
    std::function<void(int depth, nlohmann::ordered_json::parse_event_t event, const std::string& key)>;

inline constexpr int kAnyDepth = std::numeric_limits<int>::max();

// The value of a whole text, with the keys of objects in their order. Of a key that an object has twice, the
// last counts. More than `most_depth` containers within each other are a mistake.
std::variant<nlohmann::ordered_json, JsonMistake> ReadJson(std::string_view text, int most_depth = kAnyDepth,
                                                           const JsonWatch& watch = nullptr);

// The same where nobody asks what is wrong with a text that is none.
std::optional<nlohmann::ordered_json> TryReadJson(std::string_view text, int most_depth = 64);

struct JsonStyle {
  int indent = -1;          // -1: all on one line
  bool only_ascii = false;  // other characters are escaped
};

// From any text: what is no UTF-8 becomes U+FFFD. Numbers that are no integers have the shortest form that
// reads back. Integers that 64 bits do not hold are written on one line only.
std::string WriteJson(const nlohmann::ordered_json& json, JsonStyle style = {});

// Whether it is an integer that 64 bits do not hold.
bool IsLongInteger(const nlohmann::ordered_json& value);

// Any number, as near as a double is.
std::optional<double> NumberOf(const nlohmann::ordered_json& value);

}  // namespace longspec
