// SPDX-License-Identifier: Apache-2.0
#include "draft_model/config_keys.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMost = 1 << 30;
constexpr int kMaxJsonDepth = 32;

bool IsWhole(const Json& value, int64_t least) {
  return value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= kMost;
}

std::string WholeNumber(int64_t least) {
  return "a whole number from " + std::to_string(least) + " to " + std::to_string(kMost);
}

}  // namespace

Result<ConfigKeys> ConfigKeys::Parse(const std::string& text, const std::string& path) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    return !(too_deep |= depth > kMaxJsonDepth);
  };
  Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep || json.is_discarded() || !json.is_object()) return Corrupt(path + ": not a JSON object");
  ConfigKeys keys;
  keys.json_ = std::make_shared<const Json>(std::move(json));
  keys.path_ = path;
  return keys;
}

Result<ConfigKeys> ConfigKeys::With(const char* key) const {
  LS_ASSIGN(const ConfigKeys nested, Object(key));
  if (nested.empty()) return *this;
  Json json = *nested.json_;
  for (const auto& [name, value] : json_->items()) {
    if (!value.is_null()) json[name] = value;
  }
  ConfigKeys keys;
  keys.json_ = std::make_shared<const Json>(std::move(json));
  keys.path_ = path_;
  return keys;
}

const Json* ConfigKeys::Find(const char* key) const {
  if (json_ == nullptr) return nullptr;
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

Status ConfigKeys::Must(const char* key, const std::string& be) const {
  return Corrupt(path_ + ": \"" + key + "\" must be " + be);
}

Result<int> ConfigKeys::Size(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return 0;
  if (!IsWhole(*value, 1)) return Must(key, WholeNumber(1));
  return value->get<int>();
}

Result<int> ConfigKeys::Index(const char* key, int absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!IsWhole(*value, 0)) return Must(key, WholeNumber(0));
  return value->get<int>();
}

Result<double> ConfigKeys::Positive(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return 0.0;
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0.0) {
    return Must(key, "a positive number");
  }
  return value->get<double>();
}

Result<bool> ConfigKeys::Flag(const char* key, bool absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) return Must(key, "true or false");
  return value->get<bool>();
}

Result<std::string> ConfigKeys::Text(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return Must(key, "a string");
  return value->get<std::string>();
}

Result<std::vector<int>> ConfigKeys::Indices(const char* key) const {
  std::vector<int> all;
  const Json* value = Find(key);
  if (value == nullptr) return all;
  if (!value->is_array()) return Must(key, "an array of whole numbers");
  for (const Json& one : *value) {
    if (!IsWhole(one, 0)) return Must(key, "an array, each " + WholeNumber(0));
    all.push_back(one.get<int>());
  }
  return all;
}

Result<std::vector<std::string>> ConfigKeys::Texts(const char* key) const {
  std::vector<std::string> all;
  const Json* value = Find(key);
  if (value == nullptr) return all;
  if (!value->is_array()) return Must(key, "an array of strings");
  for (const Json& one : *value) {
    if (!one.is_string()) return Must(key, "an array of strings");
    all.push_back(one.get<std::string>());
  }
  return all;
}

Result<ConfigKeys> ConfigKeys::Object(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return ConfigKeys();
  if (!value->is_object()) return Must(key, "an object");
  ConfigKeys keys;
  keys.json_ = std::shared_ptr<const Json>(json_, value);
  keys.path_ = path_;
  return keys;
}

}  // namespace longspec
