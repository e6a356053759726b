// SPDX-License-Identifier: Apache-2.0
//
// Fields of a JSON object read one by one, each with its type and range. The first mistake is kept; what is
// read after it does not matter. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "openai/errors.h"

namespace longspec::openai {

// The value of a whole number, also of one that is written 42.0, as far as an int64_t can say it; nothing if
// it is no whole number.
std::optional<int64_t> WholeNumber(const nlohmann::ordered_json& value);

class Fields {
 public:
  // `object`, which must outlive this, is the value of the field `place`; "" for the request itself.
  Fields(const nlohmann::ordered_json& object, std::string place);

  // The value, or null if there is none. From then on the field counts as known.
  const nlohmann::ordered_json* Find(std::string_view name);

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
  void Fail(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }

  std::string PlaceOf(std::string_view name) const;  // "messages[0].content"
  // A copy of the object without the fields that were asked for.
  nlohmann::ordered_json Rest() const;
  // Fields of the object that nobody asked for, at most 8.
  std::vector<std::string> Unknown() const;

 private:
  void FailType(std::string_view name, const char* wanted, const nlohmann::ordered_json& value);

  const nlohmann::ordered_json& object_;
  const std::string place_;
  std::vector<std::string_view> known_;  // names are literals
  std::optional<ApiError> error_;
};

}  // namespace longspec::openai
