// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/json.h"
#include "json/json_text.h"

namespace longspec::jinja {
namespace {

constexpr int kMaxNesting = 100;  // of containers in the input

using Json = nlohmann::ordered_json;

// Integers of any size stay whole: models write them, and their conversations go on.
Value ValueOf(Runtime& runtime, const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned:
    case Json::value_t::binary:
      return Value::Whole(WriteJson(json));
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return runtime.String(json.get<std::string>());
    case Json::value_t::array: {
      const Value list = runtime.NewList({});
      for (const Json& item : json) list.list().items.push_back(ValueOf(runtime, item));
      return list;
    }
    case Json::value_t::object: {
      const Value dict = Value::Of(runtime.NewDict());
      for (const auto& [key, item] : json.items()) dict.dict().Set(key, ValueOf(runtime, item));
      return dict;
    }
    default:
      return Value::None();
  }
}

}  // namespace

Result<Value> ParseJson(Runtime& runtime, std::string_view text) {
  const auto read = ReadJson(text, kMaxNesting);
  if (const auto* json = std::get_if<Json>(&read)) return ValueOf(runtime, *json);
  const auto& mistake = std::get<JsonMistake>(read);
  return InvalidArgument("invalid JSON: " + (mistake.too_deep
                                                 ? "more than " + std::to_string(kMaxNesting) + " levels"
                                                 : "a syntax error at byte " + std::to_string(mistake.byte)));
}

Result<Value> FromJson(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "from_json()").status());
  if (self.IsUndefined()) return self.UndefinedError();
  if (!self.IsString()) return InvalidArgument("from_json needs a text, not " + std::string(self.TypeName()));
  if (!runtime.ChargeBytes(self.text().size())) return runtime.status();
  LS_ASSIGN(Value value, ParseJson(runtime, self.text()));
  return runtime.ok() ? Result<Value>(std::move(value)) : runtime.status();
}

}  // namespace longspec::jinja
