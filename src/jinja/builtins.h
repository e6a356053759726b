// SPDX-License-Identifier: Apache-2.0
//
// The filters, tests, functions and methods that templates may use, found by name, and how they read their
// arguments. The tables are constant and shared by all threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/value.h"
#include "longspec/status.h"

namespace longspec::jinja {

// Null if there is none of this name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindFunction(std::string_view name);
const Builtin* FindMethod(const Value& receiver, std::string_view name);

// The tables of each source file, which the functions above search.
struct BuiltinTable {
  const Builtin* begin;
  size_t size;
};
BuiltinTable TextFilters();
BuiltinTable NumberFilters();
BuiltinTable SequenceFilters();
BuiltinTable SelectionFilters();
BuiltinTable TextMethods();
BuiltinTable DictMethods();
BuiltinTable ListMethods();
BuiltinTable LoopMethods();

// Arguments matched with parameters, as Python does it. Refers to the arguments it was made of.
class Parameters {
 public:
  // `signature` looks like "replace(old, new, count)"; the first `required` parameters must be given.
  static Result<Parameters> Bind(const Arguments& arguments, std::string_view signature, size_t required = 0);

  // The argument for the i-th parameter, or null if it was left out.
  const Value* operator[](size_t i) const { return values_[i]; }
  bool Flag(size_t i, bool otherwise) const;
  Result<int64_t> Integer(size_t i, int64_t otherwise) const;
  Result<std::string> Text(Runtime& runtime, size_t i, std::string_view otherwise) const;

 private:
  Status Error(const std::string& message) const { return InvalidArgument(callee_ + " " + message); }

  std::string callee_;
  std::vector<const Value*> values_;
  std::vector<std::string> names_;
};

// What filters mean by attribute="a.b.0" and by ignoring case.

// The steps of a path: names, and integers where the path has digits. None is an empty path.
Result<std::vector<Value>> AttributePath(Runtime& runtime, const Value& attribute);
// Follows a path; what is undefined on the way becomes `otherwise` if that is given.
Result<Value> FollowPath(Runtime& runtime, const Value& object, const std::vector<Value>& path,
                         const Value* otherwise = nullptr);
// A text in small letters unless case matters; other values as they are.
Value FoldCase(Runtime& runtime, const Value& value, bool case_sensitive);

}  // namespace longspec::jinja
