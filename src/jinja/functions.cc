// SPDX-License-Identifier: Apache-2.0
//
// The functions that every template can call.
#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

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
