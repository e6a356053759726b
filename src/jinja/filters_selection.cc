// SPDX-License-Identifier: Apache-2.0
//
// Filters that apply other filters and tests to each item, and that pick attributes or defaults.
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

// A filter or test that an argument names, with the arguments that follow its name.
struct NamedCall {
  const Builtin* builtin = nullptr;
  Arguments arguments;
};

Result<NamedCall> TakeNamedCall(const Arguments& arguments, size_t at,
                                const Builtin* (*find)(std::string_view), std::string_view what) {
  const Value& name = arguments.positional[at];
  if (!name.IsString()) {
    return InvalidArgument("the " + std::string(what) + " to apply must be named by a string, not " +
                           std::string(name.TypeName()));
  }
  NamedCall call;
  call.builtin = find(name.text());
  if (call.builtin == nullptr) {
    return Unsupported("the " + std::string(what) + " '" + name.text() + "' is not offered");
  }
  const auto rest = arguments.positional.begin() + static_cast<ptrdiff_t>(at) + 1;
  call.arguments.positional.assign(rest, arguments.positional.end());
  call.arguments.named = arguments.named;
  return call;
}

// Where Python's filters of items look at their arguments not at all.
bool HasNoItems(const Value& value) { return !Truthy(value); }
Value NoItems(Runtime& runtime) { return runtime.NewList({}, ListKind::kGenerator); }

Result<Value> MapAttribute(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "map(attribute, default)", 1));
  LS_ASSIGN(const std::vector<Value> path, AttributePath(runtime, *p[0]));
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  for (Value& item : items) {
    LS_ASSIGN(item, FollowPath(runtime, item, path, p[1]));
  }
  return runtime.NewList(std::move(items), ListKind::kGenerator);
}

Result<Value> Map(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Runtime::Level level(runtime);  // a filter may be map itself
  if (!level) return runtime.status();
  if (HasNoItems(self)) return NoItems(runtime);
  if (arguments.positional.empty()) return MapAttribute(runtime, self, arguments);
  LS_ASSIGN(const NamedCall filter, TakeNamedCall(arguments, 0, FindFilter, "filter"));
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  for (Value& item : items) {
    if (!runtime.Charge(1)) return runtime.status();
    LS_ASSIGN(item, filter.builtin->call(runtime, item, filter.arguments));
  }
  return runtime.NewList(std::move(items), ListKind::kGenerator);
}

// Keeps the items, or those whose attribute at `path` does, for which the test named at `at` is `wanted`.
Result<Value> Select(Runtime& runtime, const Value& self, const Arguments& arguments, size_t at,
                     const std::vector<Value>& path, bool wanted) {
  NamedCall test;
  if (at < arguments.positional.size()) {
    LS_ASSIGN(test, TakeNamedCall(arguments, at, FindTest, "test"));
  }
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  std::vector<Value> kept;
  for (Value& item : items) {
    if (!runtime.Charge(1)) return runtime.status();
    LS_ASSIGN(Value holds, FollowPath(runtime, item, path));
    if (test.builtin != nullptr) {
      LS_ASSIGN(holds, test.builtin->call(runtime, holds, test.arguments));
    }
    if (Truthy(holds) == wanted) kept.push_back(std::move(item));
  }
  return runtime.NewList(std::move(kept), ListKind::kGenerator);
}

template <bool wanted>
Result<Value> SelectItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (HasNoItems(self)) return NoItems(runtime);
  return Select(runtime, self, arguments, 0, {}, wanted);
}

template <bool wanted>
Result<Value> SelectByAttribute(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (HasNoItems(self)) return NoItems(runtime);
  if (arguments.positional.empty()) return InvalidArgument("the attribute to select by is missing");
  LS_ASSIGN(const std::vector<Value> path, AttributePath(runtime, arguments.positional[0]));
  return Select(runtime, self, arguments, 1, path, wanted);
}

Result<Value> Default(Runtime&, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "default(default_value, boolean)"));
  const bool missing = self.IsUndefined() || (p.Flag(1, false) && !Truthy(self));
  if (!missing) return self;
  return p[0] == nullptr ? Value::Literal("") : *p[0];
}

constexpr std::array kSelectionFilters = {
    Builtin{"map", Map},
    Builtin{"select", SelectItems<true>},
    Builtin{"reject", SelectItems<false>},
    Builtin{"selectattr", SelectByAttribute<true>},
    Builtin{"rejectattr", SelectByAttribute<false>},
    Builtin{"default", Default},
    Builtin{"d", Default},
};

}  // namespace

BuiltinTable SelectionFilters() { return {kSelectionFilters.data(), kSelectionFilters.size()}; }

}  // namespace longspec::jinja
