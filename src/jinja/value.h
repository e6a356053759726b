// SPDX-License-Identifier: Apache-2.0
//
// The values of the template language, with Python's types and meanings. Scalars and strings are immutable
// and shared; lists, dictionaries and the like live in the Runtime of one rendering and are referred to by
// pointer, so that cycles neither leak nor recurse when they die. A Value that holds no container may outlive
// its Runtime and be read by several threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "longspec/status.h"

namespace longspec::jinja {

class Dict;
class Runtime;
class Value;
struct Arguments;
struct List;
struct Loop;
struct Macro;
struct MacroStatement;
struct Namespace;
struct Scope;

inline constexpr double kTwoTo63 = 9223372036854775808.0;  // the first too large for an integer

// 'text', the way messages name things.
std::string InQuotes(std::string_view text);

// A filter, test, function or method that comes with the language. `self` is what a filter, test or method is
// applied to; functions get none.
struct Builtin {
  std::string_view name;
  Result<Value> (*call)(Runtime& runtime, const Value& self, const Arguments& arguments);
};

struct BoundMethod;

class Value {
 public:
  // In the order of the variant below.
  enum class Type {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kBigInt,
    kFloat,
    kString,
    kList,
    kDict,
    kNamespace,
    kLoop,
    kMacro,
    kFunction,
    kMethod
  };

  Value() = default;  // undefined
  static Value None() { return Value(std::monostate{}); }
  static Value Bool(bool b) { return Value(b); }
  static Value Int(int64_t i) { return Value(i); }
  // Of decimal digits, with or without a minus: an integer of 64 bits where it is one. Others come from data
  // alone, and are compared and printed, but not reckoned with. REQUIRES: digits, at least one.
  static Value Whole(std::string_view digits);
  static Value Float(double d) { return Value(d); }
  // Strings that come from the template or its input; those made while rendering go through Runtime::String.
  static Value Literal(std::string text) {
    return Value(std::make_shared<const std::string>(std::move(text)));
  }
  // The message is what an attempt to use the value reports.
  static Value Undefined(std::string message) {
    return Value(UndefinedValue{std::make_shared<const std::string>(std::move(message))});
  }
  static Value Of(List* list) { return Value(list); }
  static Value Of(Dict* dict) { return Value(dict); }
  static Value Of(Namespace* ns) { return Value(ns); }
  static Value Of(Loop* loop) { return Value(loop); }
  static Value Of(Macro* macro) { return Value(macro); }
  static Value Function(const Builtin* function) { return Value(function); }
  static Value Method(const Value& receiver, const Builtin* method);

  Type type() const { return static_cast<Type>(value_.index()); }
  bool Is(Type t) const { return type() == t; }
  bool IsUndefined() const { return Is(Type::kUndefined); }
  bool IsNone() const { return Is(Type::kNone); }
  bool IsString() const { return Is(Type::kString); }
  bool IsDict() const { return Is(Type::kDict); }
  bool IsInteger() const { return Is(Type::kInt) || Is(Type::kBool); }  // Python's bool is an int
  bool IsNumber() const { return IsInteger() || Is(Type::kFloat) || Is(Type::kBigInt); }

  // REQUIRES of all below: the type says so.
  bool boolean() const { return std::get<bool>(value_); }
  int64_t integer() const { return Is(Type::kBool) ? int64_t{boolean()} : std::get<int64_t>(value_); }
  double number() const;
  const std::string& digits() const { return *std::get<BigInteger>(value_).digits; }  // of a kBigInt
  const std::string& text() const { return *std::get<StringPointer>(value_); }
  List& list() const { return *std::get<List*>(value_); }
  Dict& dict() const { return *std::get<Dict*>(value_); }
  Namespace& name_space() const { return *std::get<Namespace*>(value_); }
  Loop& loop() const { return *std::get<Loop*>(value_); }
  Macro& macro() const { return *std::get<Macro*>(value_); }
  const Builtin& function() const { return *std::get<const Builtin*>(value_); }
  const BoundMethod& method() const { return *std::get<MethodPointer>(value_); }

  // The error of using an undefined value.
  Status UndefinedError() const;
  // The object itself, for identity; null for scalars and strings.
  const void* identity() const;
  std::string_view TypeName() const;  // as Python calls it

 private:
  using StringPointer = std::shared_ptr<const std::string>;
  using MethodPointer = std::shared_ptr<const BoundMethod>;
  struct UndefinedValue {
    StringPointer message;
  };
  struct BigInteger {
    StringPointer digits;  // without leading zeros
  };
  using Variant =
      std::variant<UndefinedValue, std::monostate, bool, int64_t, BigInteger, double, StringPointer, List*,
                   Dict*, Namespace*, Loop*, Macro*, const Builtin*, MethodPointer>;
  template <typename T>
  explicit Value(T value) : value_(std::in_place_type<T>, std::move(value)) {}

  Variant value_;
};

struct BoundMethod {
  Value receiver;
  const Builtin* method;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Python's various sequences and iterables; a generator is empty once it has been read.
enum class ListKind { kList, kTuple, kGenerator, kKeys, kValues, kItems };

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  bool IsIndexable() const { return kind == ListKind::kList || kind == ListKind::kTuple; }
};

// Keeps the order of insertion.
class Dict {
 public:
  struct Entry {
    Value key, value;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  // The value of a string key, or null.
  const Value* Find(std::string_view key) const;
  // Keys of any type; an error if the key cannot be hashed (lists, dictionaries).
  Result<const Value*> Find(Runtime& runtime, const Value& key) const;
  Status Set(Runtime& runtime, const Value& key, Value value);
  void Set(std::string_view key, Value value);

 private:
  void Insert(std::string hash, const Value& key, Value value);

  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;  // equal keys have equal encodings
};

struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
};

// The variable `loop` of a for statement.
struct Loop {
  std::vector<Value> items;
  size_t index0 = 0;
  std::vector<Value> last_changed;  // what loop.changed was called with
  bool changed_called = false;
};

struct Macro {
  const MacroStatement* definition;
  std::shared_ptr<Scope> closure;
};

struct Scope {
  explicit Scope(std::shared_ptr<Scope> enclosing) : parent(std::move(enclosing)) {}
  std::shared_ptr<Scope> parent;
  std::map<std::string, Value, std::less<>> variables;
};

}  // namespace longspec::jinja
