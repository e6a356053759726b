// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

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
  bool number_unsigned(number_unsigned_t u) override {
    // As numbers beyond 64 bits are. Models write them, and their conversations go on.
    if (u > static_cast<number_unsigned_t>(INT64_MAX)) return Put(Value::Float(static_cast<double>(u)));
    return Put(Value::Int(static_cast<int64_t>(u)));
  }
  bool number_float(number_float_t d, const string_t&) override { return Put(Value::Float(d)); }
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

}  // namespace longspec::jinja
