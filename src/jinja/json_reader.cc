// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/json.h"

namespace longspec::jinja {
namespace {

constexpr size_t kMaxNesting = 100;  // of containers in the input

// Builds values as nlohmann's parser reports them. (Its own tree would sort the keys of objects.)
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(Runtime& runtime) : runtime_(runtime) {}

  const Value& value() const { return root_; }
  const std::string& error() const { return error_; }

  bool null() override { return Put(Value::None()); }
  bool boolean(bool b) override { return Put(Value::Bool(b)); }
  bool number_integer(number_integer_t i) override { return Put(Value::Int(i)); }
  bool number_unsigned(number_unsigned_t u) override { return Put(Value::Whole(std::to_string(u))); }
  // Integers beyond 64 bits, too: models write them, and their conversations go on.
  bool number_float(number_float_t d, const string_t& text) override {
    const bool whole = text.find_first_of(".eE") == std::string::npos;
    return Put(whole ? Value::Whole(text) : Value::Float(d));
  }
  bool string(string_t& text) override { return Put(runtime_.String(std::move(text))); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override { return Open(Value::Of(runtime_.NewDict())); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(runtime_.NewList({})); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    open_.back().key = std::move(key);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail("a syntax error at byte " + std::to_string(position));
  }

 private:
  struct Container {
    Value value;
    std::string key;  // of the member that comes next
  };

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  bool Put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.IsDict()) {
      open_.back().value.dict().Set(open_.back().key, std::move(value));
    } else {
      open_.back().value.list().items.push_back(std::move(value));
    }
    return true;
  }

  bool Open(const Value& container) {
    if (open_.size() == kMaxNesting) return Fail("more than " + std::to_string(kMaxNesting) + " levels");
    Put(container);
    open_.push_back({container, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  Runtime& runtime_;
  Value root_;
  std::vector<Container> open_;
  std::string error_;
};

}  // namespace

Result<Value> ParseJson(Runtime& runtime, std::string_view text) {
  Reader reader(runtime);
  if (!nlohmann::json::sax_parse(text, &reader)) return InvalidArgument("invalid JSON: " + reader.error());
  return reader.value();
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
