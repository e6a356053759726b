// SPDX-License-Identifier: Apache-2.0
//
// The keys of a draft model's config.json as typed answers. A key that is absent or null is its default; one
// of another type is an error that names file and key. Immutable.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec {

class ConfigKeys {
 public:
  ConfigKeys() = default;  // none
  // `path` is for messages. What is no JSON object is kCorrupt.
  static Result<ConfigKeys> Parse(const std::string& json, const std::string& path);

  // These, and where they have none those of the object `key`, if there is one: configurations that nest what
  // others have side by side.
  Result<ConfigKeys> With(const char* key) const;

  bool empty() const { return json_ == nullptr; }
  bool Has(const char* key) const { return Find(key) != nullptr; }

  Result<int> Size(const char* key) const;                  // from 1 to 2^30; absent: 0
  Result<int> Index(const char* key, int absent) const;     // from 0 to 2^30
  Result<double> Positive(const char* key) const;           // finite; absent: 0
  Result<bool> Flag(const char* key, bool absent) const;    //
  Result<std::string> Text(const char* key) const;          // absent: ""
  Result<std::vector<int>> Indices(const char* key) const;  // each from 0 to 2^30; absent: none
  Result<std::vector<std::string>> Texts(const char* key) const;
  Result<ConfigKeys> Object(const char* key) const;  // absent: none

 private:
  const nlohmann::json* Find(const char* key) const;
  Status Must(const char* key, const std::string& be) const;

  std::shared_ptr<const nlohmann::json> json_;
  std::string path_;
};

}  // namespace longspec
