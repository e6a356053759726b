// SPDX-License-Identifier: Apache-2.0
#include "json/bounded_json.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "json/json_text.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

JsonRefusal TooMuch(std::string what) { return {.is_too_much = true, .message = std::move(what)}; }

// The code unit of an escape such as \ud83d, whose backslash is at `at`; -1: there is none.
int UnitAt(std::string_view text, size_t at) {
  constexpr size_t kEscapeBytes = 6;
  if (text.size() < kEscapeBytes || at > text.size() - kEscapeBytes) return -1;
  const std::string_view escape = text.substr(at, kEscapeBytes);
  if (!escape.starts_with("\\u")) return -1;
  int unit = 0;
  const auto [end, error] = std::from_chars(escape.data() + 2, escape.data() + kEscapeBytes, unit, 16);
  return error == std::errc() && end == escape.data() + kEscapeBytes ? unit : -1;
}

bool IsHighSurrogate(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool IsLowSurrogate(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

// Counts before anything is built. In text that is no JSON the counts may be wrong, but not for the part
// before the error, which is all that the parser looks at. *lone: the escapes of halves of surrogate pairs
// whose other half is missing, as clients in Python and JavaScript send of texts that were cut there.
std::optional<JsonRefusal> CheckSize(std::string_view text, const JsonLimits& limits,
                                     std::vector<size_t>* lone) {
  if (text.size() > limits.bytes) return TooMuch("more than " + std::to_string(limits.bytes) + " bytes");
  int nesting = 0;
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        const int unit = UnitAt(text, i);
        const bool is_pair = IsHighSurrogate(unit) && IsLowSurrogate(UnitAt(text, i + 6));
        if (!is_pair && (IsHighSurrogate(unit) || IsLowSurrogate(unit))) lone->push_back(i);
        i += is_pair ? 7 : 1;
      }
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if (c == '[' || c == '{') ++nesting;
    if (c == ']' || c == '}') --nesting;
    if (c == '[' || c == '{' || c == ',') ++values;
    if (nesting > limits.nesting)
      return TooMuch("more than " + std::to_string(limits.nesting) + " brackets within each other");
    if (values > limits.values) return TooMuch("more than " + std::to_string(limits.values) + " values");
  }
  return std::nullopt;
}

}  // namespace

std::variant<Json, JsonRefusal> ReadBoundedJson(std::string_view text, const JsonLimits& limits) {
  std::vector<size_t> lone;
  if (auto error = CheckSize(text, limits, &lone)) return *std::move(error);
  std::string mended;
  if (!lone.empty()) {
    mended = text;
    for (const size_t at : lone) mended.replace(at, 6, "\\ufffd");  // as long: places of mistakes stay
    text = mended;
  }
  struct TooManyKeys {};
  std::vector<size_t> keys;  // of the objects that are open
  size_t n_compared = 0;
  const auto count = [&](int, Json::parse_event_t event) {
    if (event == Json::parse_event_t::object_start) keys.push_back(0);
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event != Json::parse_event_t::key) return;
    n_compared += keys.back();
    if (++keys.back() > limits.keys || n_compared > limits.compared_keys) throw TooManyKeys();
  };
  try {
    auto read = ReadJson(text, count);
    if (auto* json = std::get_if<Json>(&read)) return std::move(*json);
    const auto& mistake = std::get<JsonMistake>(read);
    return JsonRefusal{.message = mistake.number_out_of_range
                                      ? "not JSON that can be read: a number is out of range"
                                      : "not JSON: a mistake at byte " + std::to_string(mistake.byte)};
  } catch (const TooManyKeys&) {
    return TooMuch("an object with more than " + std::to_string(limits.keys) +
                   " keys, or many of nearly as many");
  }
}

}  // namespace longspec
