// SPDX-License-Identifier: Apache-2.0
#include "api/fields.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/print.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShortText = 40;  // bytes of a string that a message quotes

constexpr size_t kMostUnknown = 8;

}  // namespace

std::variant<Json, Error> ParseJson(std::string_view text, const JsonLimits& limits) {
  auto read = ReadBoundedJson(text, limits);
  if (auto* json = std::get_if<Json>(&read)) return std::move(*json);
  const JsonRefusal& refusal = std::get<JsonRefusal>(read);
  if (!refusal.is_too_much) return Error{.message = refusal.message, .code = "invalid_json"};
  return Error{
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
      return WriteJson(value);
  }
}

std::optional<int64_t> WholeNumber(const Json& value) {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  constexpr double kTwoTo63 = 0x1p63;
  if (IsLongInteger(value)) return *NumberOf(value) < 0 ? std::numeric_limits<int64_t>::min() : kMost;
  if (value.is_number_unsigned())
    return static_cast<int64_t>(std::min(value.get<uint64_t>(), static_cast<uint64_t>(kMost)));
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::trunc(number)) return std::nullopt;
  if (number >= kTwoTo63) return kMost;
  return number < -kTwoTo63 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(number);
}

Fields::Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
  if (!object.is_object()) {
    const std::string whole = place_.empty() ? "the request" : place_;
    Fail({.message = whole + " must be an object, not " + Describe(object),
          .param = place_,
          .code = "invalid_type"});
  }
}

const Json* Fields::Find(std::string_view name) {
  const auto hidden = known_.begin() + static_cast<std::ptrdiff_t>(n_hidden_);
  const bool is_hidden = std::find(known_.begin(), hidden, name) != hidden;
  known_.push_back(name);
  const auto value_in = [name](const Json& object) -> const Json* {
    const auto it = object.find(name);
    return it == object.end() ? nullptr : &*it;
  };
  const Json* value = value_in(set_);
  if (value == nullptr && !is_hidden && object_.is_object()) value = value_in(object_);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Fields::Bool(std::string_view name, bool* out) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) {
    *out = value->get<bool>();
  } else {
    FailType(name, "true or false", *value);
  }
  return true;
}

bool Fields::Text(std::string_view name, std::string* out) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (value->is_string()) {
    *out = value->get_ref<const std::string&>();
  } else {
    FailType(name, "a text", *value);
  }
  return true;
}

bool Fields::Number(std::string_view name, double least, double most, float* out) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  const std::optional<double> number = NumberOf(*value);
  if (!number) {
    FailType(name, "a number", *value);
    return true;
  }
  if (*number >= least && *number <= most) {
    *out = static_cast<float>(*number);
  } else {
    Fail(name, "must be " + Print("from %g to %g, not ", least, most) + Describe(*value), "invalid_value");
  }
  return true;
}

bool Fields::Integer(std::string_view name, int64_t least, int64_t most, int* out) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (!number) {
    FailType(name, "a whole number", *value);
    return true;
  }
  if (*number >= least && *number <= most) {
    *out = static_cast<int>(std::min<int64_t>(*number, std::numeric_limits<int>::max()));
    return true;
  }
  const std::string range = most == std::numeric_limits<int64_t>::max()
                                ? "at least " + std::to_string(least)
                                : "from " + std::to_string(least) + " to " + std::to_string(most);
  Fail(name, "must be " + range + ", not " + Describe(*value), "invalid_value");
  return true;
}

void Fields::Only(std::string_view name, std::string_view allowed, std::string_view advice) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  const Json values = Json::parse(allowed);
  if (std::find(values.begin(), values.end(), *value) == values.end())
    Fail(name, "is not supported" + (advice.empty() ? "" : ": " + std::string(advice)),
         "unsupported_parameter");
}

void Fields::Missing(std::string_view name) { Fail(name, "is missing", "missing_required_parameter"); }

void Fields::Fail(std::string_view name, const std::string& message, std::string code) {
  const std::string place = PlaceOf(name);
  Fail({.message = place + " " + message, .param = place, .code = std::move(code)});
}

void Fields::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void Fields::FailType(std::string_view name, const char* wanted, const Json& value) {
  Fail(name, "must be " + std::string(wanted) + ", not " + Describe(value), "invalid_type");
}

std::string Fields::PlaceOf(std::string_view name) const {
  return (place_.empty() ? "" : place_ + ".") + std::string(name);
}

std::vector<std::string> Fields::Unknown() const {
  std::vector<std::string> unknown;
  for (const Json* object : {&object_, &set_}) {
    if (!object->is_object()) continue;
    for (const auto& [name, value] : object->items()) {
      if (unknown.size() == kMostUnknown) return unknown;
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      if (object == &object_ && set_.contains(name)) continue;
      unknown.push_back(name.substr(0, 64));
    }
  }
  return unknown;
}

}  // namespace longspec::api
