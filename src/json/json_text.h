// SPDX-License-Identifier: Apache-2.0
//
// JSON to values and back, with integers whole. One that 64 bits do not hold would become a double: here it
// is a value of the kind `binary`, which JSON has none of, and holds its digits. Pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace longspec {

struct JsonMistake {
  size_t byte = 0;  // where it is, from 1 on
  bool number_out_of_range = false;
};

// Told of containers that begin and end, and of keys, with the number of containers that are open; for
// limits, by throwing.
using JsonWatch = std::function<void(int depth, nlohmann::ordered_json::parse_event_t event)>;

// The value of a whole text, with the keys of objects in their order. Of a key that an object has twice, the
// last counts.
std::variant<nlohmann::ordered_json, JsonMistake> ReadJson(std::string_view text,
                                                           const JsonWatch& watch = nullptr);

// On one line, from any text: what is no UTF-8 becomes U+FFFD. Numbers that are no integers have the shortest
// form that reads back.
std::string WriteJson(const nlohmann::ordered_json& json);

// The value of a text that WriteJson wrote.
nlohmann::ordered_json LoadJson(std::string_view text);

// Whether it is an integer that 64 bits do not hold.
bool IsLongInteger(const nlohmann::ordered_json& value);

// Any number, as near as a double is.
std::optional<double> NumberOf(const nlohmann::ordered_json& value);

}  // namespace longspec
