// SPDX-License-Identifier: Apache-2.0
#include "jinja/builtins.h"

#include <algorithm>

#include "base/status_macros.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

const Builtin* Search(const BuiltinTable& table, std::string_view name) {
  const Builtin* end = table.begin + table.size;
  const Builtin* found = std::find_if(table.begin, end, [name](const Builtin& b) { return b.name == name; });
  return found == end ? nullptr : found;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  for (const BuiltinTable& table : {TextFilters(), NumberFilters(), SequenceFilters(), SelectionFilters()}) {
    if (const Builtin* found = Search(table, name); found != nullptr) return found;
  }
  return nullptr;
}

const Builtin* FindMethod(const Value& receiver, std::string_view name) {
  switch (receiver.type()) {
    case Value::Type::kString:
      return Search(TextMethods(), name);
    case Value::Type::kDict:
      return Search(DictMethods(), name);
    case Value::Type::kLoop:
      return Search(LoopMethods(), name);
    case Value::Type::kList:
      return receiver.list().kind == ListKind::kList ? Search(ListMethods(), name) : nullptr;
    default:
      return nullptr;
  }
}

Result<Parameters> Parameters::Bind(const Arguments& arguments, std::string_view signature, size_t required) {
  Parameters bound;
  const size_t open = signature.find('(');
  bound.callee_ = signature.substr(0, open);
  std::string_view names = signature.substr(open + 1, signature.size() - open - 2);
  while (!names.empty()) {
    const size_t comma = std::min(names.find(", "), names.size());
    bound.names_.emplace_back(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 2, names.size()));
  }
  bound.values_.resize(bound.names_.size(), nullptr);
  if (arguments.positional.size() > bound.values_.size()) {
    return bound.Error("takes no more than " + std::to_string(bound.values_.size()) + " arguments, got " +
                       std::to_string(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(bound.names_.begin(), bound.names_.end(), name);
    if (it == bound.names_.end()) return bound.Error("has no parameter '" + name + "'");
    const Value*& slot = bound.values_[static_cast<size_t>(it - bound.names_.begin())];
    if (slot != nullptr) return bound.Error("got the argument '" + name + "' twice");
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) return bound.Error("lacks the argument '" + bound.names_[i] + "'");
  }
  return bound;
}

bool Parameters::Flag(size_t i, bool otherwise) const {
  return values_[i] == nullptr ? otherwise : Truthy(*values_[i]);
}

Result<int64_t> Parameters::Integer(size_t i, int64_t otherwise) const {
  const Value* value = values_[i];
  if (value == nullptr) return otherwise;
  if (value->IsUndefined()) return value->UndefinedError();
  if (value->IsInteger()) return value->integer();
  return Error("needs an integer as '" + names_[i] + "', not " + std::string(value->TypeName()));
}

Result<std::string> Parameters::Text(Runtime& runtime, size_t i, std::string_view otherwise) const {
  if (values_[i] == nullptr) return std::string(otherwise);
  return ToText(runtime, *values_[i]);
}

}  // namespace longspec::jinja
