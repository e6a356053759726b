// SPDX-License-Identifier: Apache-2.0
#include "jinja/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/print.h"
#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/characters.h"
#include "jinja/ops.h"

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

namespace {

using Type = Value::Type;

struct Style {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool lines = false;  // each item on its own line
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

std::string FloatText(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return FormatFloat(number);
}

// A byte that belongs to no character.
bool IsStray(const CodePoint& c) { return c.value >= 0xDC80 && c.value <= 0xDCFF; }

// Characters as nlohmann escapes them, which is Python's way.
void AppendEscaped(std::string_view text, bool ensure_ascii, std::string* out) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', ensure_ascii, nlohmann::json::error_handler_t::replace);
  out->append(quoted, 1, quoted.size() - 2);
}

class Writer {
 public:
  Writer(Runtime& runtime, const Style& style) : runtime_(runtime), style_(style), out_(runtime) {}

  Status Write(const Value& value);
  std::string Take() { return out_.Take(); }

 private:
  void WriteText(std::string_view text);
  Status WriteList(const std::vector<Value>& items);
  Status WriteDict(const Dict& dict);
  Status WriteKey(const Value& key);
  void NewLine();
  void Separate(bool first) {
    if (!first) out_.Append(style_.item_separator);
    NewLine();
  }

  Runtime& runtime_;
  const Style& style_;
  TextBuilder out_;
  size_t level_ = 0;
};

void Writer::NewLine() {
  if (!style_.lines) return;
  out_.Append("\n");
  for (size_t i = 0; i < level_; ++i) out_.Append(style_.indent);
}

void Writer::WriteText(std::string_view text) {
  if (!runtime_.ChargeBytes(6 * text.size()) || !runtime_.CheckSize(text.size())) return;
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !IsStray(DecodeAt(text, end))) end += DecodeAt(text, end).size;
    AppendEscaped(text.substr(at, end - at), style_.ensure_ascii, &quoted);
    at = end;
    // JSON has no word for a stray byte: it stays, or becomes the escape that Python has for it.
    if (at == text.size()) break;
    const char32_t stray = DecodeAt(text, at++).value;
    if (style_.ensure_ascii) {
      quoted += Print("\\u%04x", static_cast<unsigned>(stray));
    } else {
      AppendCodePoint(stray, &quoted);
    }
  }
  quoted += '"';
  out_.Append(quoted);
}

Status Writer::Write(const Value& value) {
  const Runtime::Level level(runtime_);
  if (!level || !runtime_.Charge(1)) return runtime_.status();
  switch (value.type()) {
    case Type::kNone:
      out_.Append("null");
      return {};
    case Type::kBool:
      out_.Append(value.boolean() ? "true" : "false");
      return {};
    case Type::kInt:
      out_.Append(std::to_string(value.integer()));
      return {};
    case Type::kBigInt:
      out_.Append(value.digits());
      return {};
    case Type::kFloat:
      out_.Append(FloatText(value.number()));
      return {};
    case Type::kString:
      WriteText(value.text());
      return runtime_.status();
    case Type::kDict:
      return WriteDict(value.dict());
    case Type::kList:
      if (value.list().IsIndexable()) return WriteList(value.list().items);
      break;
    default:
      break;
  }
  return InvalidArgument("an object of type " + std::string(value.TypeName()) + " is not JSON serializable");
}

Status Writer::WriteList(const std::vector<Value>& items) {
  out_.Append("[");
  ++level_;
  for (size_t i = 0; i < items.size(); ++i) {
    Separate(i == 0);
    LS_TRY(Write(items[i]));
  }
  --level_;
  if (!items.empty()) NewLine();
  out_.Append("]");
  return runtime_.status();
}

Status Writer::WriteKey(const Value& key) {
  if (key.IsString()) {
    WriteText(key.text());
    return runtime_.status();
  }
  if (!key.IsNumber() && !key.IsNone()) {
    return InvalidArgument("keys must be str, int, float, bool or None, not " + std::string(key.TypeName()));
  }
  out_.Append("\"");
  LS_TRY(Write(key));
  out_.Append("\"");
  return {};
}

Status Writer::WriteDict(const Dict& dict) {
  std::vector<Value> keys;
  if (!runtime_.Charge(dict.entries().size())) return runtime_.status();
  for (const Dict::Entry& entry : dict.entries()) keys.push_back(entry.key);
  if (style_.sort_keys)
    LS_TRY(SortValues(
        runtime_, false, [](const Value& key) { return Result<Value>(key); }, &keys));
  out_.Append("{");
  ++level_;
  for (size_t i = 0; i < keys.size(); ++i) {
    Separate(i == 0);
    LS_TRY(WriteKey(keys[i]));
    out_.Append(style_.key_separator);
    LS_ASSIGN(const Value* value, dict.Find(runtime_, keys[i]));
    LS_TRY(Write(*value));
  }
  --level_;
  if (!keys.empty()) NewLine();
  out_.Append("}");
  return runtime_.status();
}

Status ReadIndent(Runtime& runtime, const Value& indent, Style* style) {
  if (indent.IsNone()) return {};
  style->lines = true;
  style->item_separator.assign(1, ',');
  if (indent.IsString()) {
    style->indent = indent.text();
    runtime.ChargeBytes(style->indent.size());
    return runtime.status();
  }
  if (!indent.IsInteger()) return InvalidArgument("tojson needs an integer or a string as 'indent'");
  const size_t width = static_cast<size_t>(std::max<int64_t>(indent.integer(), 0));
  if (!runtime.CheckSize(width)) return runtime.status();
  style->indent.assign(width, ' ');
  runtime.ChargeBytes(width);
  return runtime.status();
}

Status ReadSeparators(Runtime& runtime, const Value& separators, Style* style) {
  if (separators.IsNone()) return {};
  LS_ASSIGN(const std::vector<Value> pair, Iterate(runtime, separators));
  if (pair.size() != 2 || !pair[0].IsString() || !pair[1].IsString()) {
    return InvalidArgument("tojson needs two strings as 'separators'");
  }
  style->item_separator = pair[0].text();
  style->key_separator = pair[1].text();
  runtime.ChargeBytes(style->item_separator.size() + style->key_separator.size());
  return runtime.status();
}

}  // namespace

Result<Value> ToJson(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p,
            Parameters::Bind(arguments, "tojson(ensure_ascii, indent, separators, sort_keys)"));
  Style style;
  style.ensure_ascii = p.Flag(0, false);
  style.sort_keys = p.Flag(3, false);
  if (p[1] != nullptr) LS_TRY(ReadIndent(runtime, *p[1], &style));
  if (p[2] != nullptr) LS_TRY(ReadSeparators(runtime, *p[2], &style));
  Writer writer(runtime, style);
  LS_TRY(writer.Write(self));
  return runtime.String(writer.Take());
}

}  // namespace longspec::jinja
