// SPDX-License-Identifier: Apache-2.0
//
// JSON from strangers: read with limits, so that no text costs more memory or stack than a request may, and
// then field by field, each with its type and range. The first mistake is kept; what is read after it does
// not matter. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/errors.h"
#include "json/bounded_json.h"
#include "json/json_text.h"

namespace longspec::api {

// As ReadBoundedJson does it.
std::variant<nlohmann::ordered_json, Error> ParseJson(std::string_view text, const JsonLimits& limits = {});

// A value for an error message: numbers and short strings as they are, others by their kind ("a list").
std::string Describe(const nlohmann::ordered_json& value);

// The value of a whole number, also of one that is written 42.0, as far as an int64_t can say it; nothing if
// it is no whole number.
std::optional<int64_t> WholeNumber(const nlohmann::ordered_json& value);

class Fields {
 public:
  // `object`, which must outlive this, is the value of the field `place`; "" for the request itself.
  Fields(const nlohmann::ordered_json& object, std::string place);

  // The value, or null if there is none. From then on the field counts as known.
  const nlohmann::ordered_json* Find(std::string_view name);

  // One API's fields in the words of another: what was asked for so far is absent from here on, and `value`
  // is that of a field, whatever the object has.
  void HideKnown() { n_hidden_ = known_.size(); }
  void Set(const std::string& name, nlohmann::ordered_json value) { set_[name] = std::move(value); }

  // These leave *out as it is if the field is absent, and say whether it was there.
  bool Bool(std::string_view name, bool* out);
  bool Text(std::string_view name, std::string* out);
  bool Number(std::string_view name, double least, double most, float* out);
  bool Integer(std::string_view name, int64_t least, int64_t most,
               int* out);  // a larger one than an int holds: INT_MAX

  // A field that may only say what is done anyway: absent, null, or one of `allowed`, the JSON text of a
  // list. `advice` is what would be right instead: "logprobs gives those of the answer"; empty: nothing
  // would.
  void Only(std::string_view name, std::string_view allowed, std::string_view advice = {});
  void Missing(std::string_view name);

  void Fail(std::string_view name, const std::string& message, std::string code);
  void Fail(Error error);
  const std::optional<Error>& error() const { return error_; }

  std::string PlaceOf(std::string_view name) const;  // "messages[0].content"
  // Fields that nobody asked for, at most 8.
  std::vector<std::string> Unknown() const;

 private:
  void FailType(std::string_view name, const char* wanted, const nlohmann::ordered_json& value);

  const nlohmann::ordered_json& object_;
  const std::string place_;
  nlohmann::ordered_json set_ = nlohmann::ordered_json::object();
  std::vector<std::string_view> known_;  // names are literals
  size_t n_hidden_ = 0;                  // of them
  std::optional<Error> error_;
};

}  // namespace longspec::api
