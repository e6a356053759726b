// SPDX-License-Identifier: Apache-2.0
#include "jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/status_macros.h"
#include "jinja/runtime.h"

namespace longspec::jinja {
namespace {

std::string_view ListTypeName(ListKind kind) {
  switch (kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kGenerator:
      return "generator";
    case ListKind::kKeys:
      return "dict_keys";
    case ListKind::kValues:
      return "dict_values";
    case ListKind::kItems:
      return "dict_items";
  }
  return "list";
}

template <typename T>
void AppendBytes(char tag, T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->push_back(tag);
  out->append(bytes, sizeof(T));
}

std::string StringHash(std::string_view text) {
  std::string hash = "s";
  hash.append(text);
  return hash;
}

// Appends a text that is equal for keys that Python holds equal (1, 1.0 and True) and different for others.
Status AppendHash(Runtime& runtime, const Value& key, std::string* out) {
  const Runtime::Level level(runtime);
  if (!level || !runtime.Charge(1)) return runtime.status();
  switch (key.type()) {
    case Value::Type::kNone:
      out->push_back('n');
      return {};
    case Value::Type::kUndefined:
      out->push_back('u');
      return {};
    case Value::Type::kBool:
    case Value::Type::kInt:
      AppendBytes('i', key.integer(), out);
      return {};
    case Value::Type::kBigInt:
      out->push_back('b');
      out->append(key.digits());
      out->push_back('.');
      return {};
    case Value::Type::kFloat: {
      const double d = key.number();
      if (std::trunc(d) == d && d >= -kTwoTo63 && d < kTwoTo63) {
        AppendBytes('i', static_cast<int64_t>(d), out);
      } else {
        AppendBytes('f', d, out);
      }
      return {};
    }
    case Value::Type::kString:
      if (!runtime.ChargeBytes(key.text().size())) return runtime.status();
      AppendBytes('s', key.text().size(), out);  // its length keeps tuples of strings apart
      out->append(key.text());
      return {};
    case Value::Type::kList:
      if (key.list().kind != ListKind::kTuple) break;
      AppendBytes('t', key.list().items.size(), out);
      for (const Value& item : key.list().items) {
        LS_TRY(AppendHash(runtime, item, out));
        if (!runtime.CheckSize(out->size())) return runtime.status();
      }
      return {};
    case Value::Type::kDict:
      break;
    default:
      AppendBytes('p', key.identity(), out);
      return {};
  }
  return InvalidArgument("unhashable type: '" + std::string(key.TypeName()) + "'");
}

Result<std::string> HashOf(Runtime& runtime, const Value& key) {
  if (key.IsString()) {
    if (!runtime.ChargeBytes(key.text().size())) return runtime.status();
    return StringHash(key.text());
  }
  std::string hash;
  LS_TRY(AppendHash(runtime, key, &hash));
  return hash;
}

}  // namespace

std::string InQuotes(std::string_view text) {
  std::string quoted(1, '\'');
  quoted.append(text);
  quoted.push_back('\'');
  return quoted;
}

Value Value::Whole(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  std::string text(negative ? "-" : "");
  text += digits;
  int64_t small = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), small);
  if (error == std::errc()) return Int(small);
  return Value(BigInteger{std::make_shared<const std::string>(std::move(text))});
}

double Value::number() const {
  if (IsInteger()) return static_cast<double>(integer());
  return Is(Type::kBigInt) ? std::strtod(digits().c_str(), nullptr) : std::get<double>(value_);
}

Value Value::Method(const Value& receiver, const Builtin* method) {
  return Value(std::make_shared<const BoundMethod>(BoundMethod{receiver, method}));
}

Status Value::UndefinedError() const {
  const StringPointer& message = std::get<UndefinedValue>(value_).message;
  return InvalidArgument(message ? *message : "the value is undefined");
}

const void* Value::identity() const {
  switch (type()) {
    case Type::kList:
      return &list();
    case Type::kDict:
      return &dict();
    case Type::kNamespace:
      return &name_space();
    case Type::kLoop:
      return &loop();
    case Type::kMacro:
      return &macro();
    case Type::kFunction:
      return &function();
    case Type::kMethod:
      return &method();
    default:
      return nullptr;
  }
}

std::string_view Value::TypeName() const {
  switch (type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
    case Type::kBigInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return "str";
    case Type::kList:
      return ListTypeName(list().kind);
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "Namespace";
    case Type::kLoop:
      return "LoopContext";
    case Type::kMacro:
      return "Macro";
    case Type::kFunction:
      return "function";
    case Type::kMethod:
      return "method";
  }
  return "object";
}

const Value* Dict::Find(std::string_view key) const {
  const auto it = index_.find(StringHash(key));
  return it == index_.end() ? nullptr : &entries_[it->second].value;
}

Result<const Value*> Dict::Find(Runtime& runtime, const Value& key) const {
  LS_ASSIGN(const std::string hash, HashOf(runtime, key));
  const auto it = index_.find(hash);
  return it == index_.end() ? nullptr : &entries_[it->second].value;
}

Status Dict::Set(Runtime& runtime, const Value& key, Value value) {
  if (!runtime.Charge(8)) return runtime.status();  // an entry takes about as much memory as 8 list elements
  LS_ASSIGN(std::string hash, HashOf(runtime, key));
  Insert(std::move(hash), key, std::move(value));
  return {};
}

void Dict::Set(std::string_view key, Value value) {
  Insert(StringHash(key), Value::Literal(std::string(key)), std::move(value));
}

void Dict::Insert(std::string hash, const Value& key, Value value) {
  const auto [it, added] = index_.try_emplace(std::move(hash), entries_.size());
  if (added) {
    entries_.push_back({key, std::move(value)});
  } else {
    entries_[it->second].value = std::move(value);
  }
}

}  // namespace longspec::jinja
