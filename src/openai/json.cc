// SPDX-License-Identifier: Apache-2.0
#include "openai/json.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShortText = 40;  // bytes of a string that a message quotes

}  // namespace

std::variant<Json, ApiError> ParseJson(std::string_view text, const JsonLimits& limits) {
  auto read = ReadBoundedJson(text, limits);
  if (auto* json = std::get_if<Json>(&read)) return std::move(*json);
  const JsonRefusal& refusal = std::get<JsonRefusal>(read);
  if (!refusal.is_too_much) return ApiError{.message = refusal.message, .code = "invalid_json"};
  return ApiError{
      .status_code = 413, .message = "the request has " + refusal.message, .code = "request_too_large"};
}

std::string Describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::string:
      if (value.get_ref<const std::string&>().size() > kShortText) return "a longer text";
      [[fallthrough]];
    default:
      return DumpJson(value);
  }
}

std::string DumpJson(const Json& json) { return WriteJson(json); }

}  // namespace longspec::openai
