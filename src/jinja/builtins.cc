// SPDX-License-Identifier: Apache-2.0
#include "jinja/builtins.h"

#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "jinja/characters.h"
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

Result<std::vector<Value>> AttributePath(Runtime& runtime, const Value& attribute) {
  std::vector<Value> path;
  if (attribute.IsNone()) return path;
  if (!attribute.IsString()) {
    path.push_back(attribute);
    return path;
  }
  if (!runtime.ChargeBytes(attribute.text().size())) return runtime.status();
  std::string_view rest = attribute.text();
  while (true) {
    if (!runtime.Charge(4)) return runtime.status();  // a step takes about as much memory as 4 list elements
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view step = rest.substr(0, dot);
    const bool digits = !step.empty() && step.find_first_not_of("0123456789") == std::string_view::npos;
    const std::optional<int64_t> index = digits ? ParseInteger(step, 10) : std::nullopt;
    path.push_back(index.has_value() ? Value::Int(*index) : Value::Literal(std::string(step)));
    if (dot == rest.size()) return path;
    rest.remove_prefix(dot + 1);
  }
}

Result<Value> FollowPath(Runtime& runtime, const Value& object, const std::vector<Value>& path,
                         const Value* otherwise) {
  Value value = object;
  for (const Value& step : path) {
    if (!runtime.Charge(1)) return runtime.status();
    LS_ASSIGN(value, GetItem(runtime, value, step));
    if (value.IsUndefined() && otherwise != nullptr && !otherwise->IsNone()) value = *otherwise;
  }
  return value;
}

Value FoldCase(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.IsString()) return value;
  return runtime.String(Lower(value.text()));
}

namespace {

// --- The functions that every template can call. ---

Result<Value> Range(Runtime& runtime, const Value&, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "range(start, stop, step)", 1));
  LS_ASSIGN(int64_t start, p.Integer(0, 0));
  LS_ASSIGN(int64_t stop, p.Integer(1, 0));
  LS_ASSIGN(const int64_t step, p.Integer(2, 1));
  if (p[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return InvalidArgument("range() needs a step that is not zero");
  std::vector<Value> numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (!runtime.Charge(2)) return runtime.status();
    numbers.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.NewList(std::move(numbers));
}

Result<Value> MakeDict(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return InvalidArgument("dict() takes one mapping and named values");
  Dict* dict = runtime.NewDict();
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.IsDict()) {
      for (const Dict::Entry& entry : source.dict().entries())
        LS_TRY(dict->Set(runtime, entry.key, entry.value));
    } else {
      LS_ASSIGN(const std::vector<Value> pairs, Iterate(runtime, source));
      for (const Value& item : pairs) {
        LS_ASSIGN(const std::vector<Value> pair, Iterate(runtime, item));
        if (pair.size() != 2) return InvalidArgument("dict() needs pairs of a key and a value");
        LS_TRY(dict->Set(runtime, pair[0], pair[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict->Set(name, value);
  return Value::Of(dict);
}

Result<Value> MakeNamespace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Value initial, MakeDict(runtime, self, arguments));
  Namespace* ns = runtime.NewNamespace();
  for (const Dict::Entry& entry : initial.dict().entries()) {
    if (!entry.key.IsString()) return InvalidArgument("namespace() needs names as keys");
    if (!runtime.Charge(8)) return runtime.status();
    ns->attributes.insert_or_assign(entry.key.text(), entry.value);
  }
  return Value::Of(ns);
}

Result<Value> RaiseException(Runtime& runtime, const Value&, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "raise_exception(message)", 1));
  LS_ASSIGN(const std::string message, p.Text(runtime, 0, ""));
  return InvalidArgument(message);
}

// The directives of strftime that mean the same everywhere; each yields a few characters.
Result<Value> StrftimeNow(Runtime& runtime, const Value&, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "strftime_now(format)", 1));
  LS_ASSIGN(const std::string format, p.Text(runtime, 0, ""));
  const std::tm now = runtime.Now();
  TextBuilder out(runtime);
  for (size_t at = 0; at < format.size() && runtime.ok(); ++at) {
    if (format[at] != '%') {
      out.Append(format.substr(at, 1));
      continue;
    }
    const size_t length = at + 2 < format.size() && format[at + 1] == '-' ? 3 : 2;  // "%-d" drops the zero
    const std::string directive = format.substr(at, length);
    constexpr std::string_view kOffered = "aAbBcdDeFHIjmMnpSTuUwWxXyY%";
    if (directive.size() < 2 || kOffered.find(directive.back()) == std::string_view::npos) {
      return Unsupported("strftime_now does not offer '" + directive + "'");
    }
    std::array<char, 128> buffer{};
    out.Append({buffer.data(), std::strftime(buffer.data(), buffer.size(), directive.c_str(), &now)});
    at += length - 1;
  }
  return runtime.String(out.Take());
}

constexpr std::array kFunctions = {
    Builtin{"range", Range},
    Builtin{"dict", MakeDict},
    Builtin{"namespace", MakeNamespace},
    Builtin{"raise_exception", RaiseException},
    Builtin{"strftime_now", StrftimeNow},
};

}  // namespace

const Builtin* FindFunction(std::string_view name) {
  const auto it =
      std::find_if(kFunctions.begin(), kFunctions.end(), [name](const Builtin& f) { return f.name == name; });
  return it == kFunctions.end() ? nullptr : &*it;
}

}  // namespace longspec::jinja
