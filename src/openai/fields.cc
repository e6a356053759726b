// SPDX-License-Identifier: Apache-2.0
#include "openai/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/print.h"
#include "json/json_text.h"
#include "openai/json.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostUnknown = 8;

}  // namespace

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
  known_.push_back(name);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
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

void Fields::Fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::FailType(std::string_view name, const char* wanted, const Json& value) {
  Fail(name, "must be " + std::string(wanted) + ", not " + Describe(value), "invalid_type");
}

std::string Fields::PlaceOf(std::string_view name) const {
  return (place_.empty() ? "" : place_ + ".") + std::string(name);
}

Json Fields::Rest() const {
  Json rest = object_;
  for (const std::string_view name : known_) rest.erase(std::string(name));
  return rest;
}

std::vector<std::string> Fields::Unknown() const {
  std::vector<std::string> unknown;
  if (!object_.is_object()) return unknown;
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    unknown.push_back(name.substr(0, 64));
    if (unknown.size() == kMostUnknown) break;
  }
  return unknown;
}

}  // namespace longspec::openai
