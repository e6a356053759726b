// SPDX-License-Identifier: Apache-2.0
//
// The tests of "x is ...".
#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/characters.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

template <bool (*holds)(const Value&)>
Result<Value> Check(Runtime&, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this test()").status());
  return Value::Bool(holds(self));
}

template <Type type>
bool HasType(const Value& value) {
  return value.Is(type);
}

bool IsDefined(const Value& value) { return !value.IsUndefined(); }
bool IsTrue(const Value& value) { return value.Is(Type::kBool) && value.boolean(); }
bool IsFalse(const Value& value) { return value.Is(Type::kBool) && !value.boolean(); }
bool IsNumber(const Value& value) { return value.IsNumber(); }
bool IsWhole(const Value& value) { return value.Is(Type::kInt) || value.Is(Type::kBigInt); }
bool IsCallable(const Value& value) {
  return value.Is(Type::kMacro) || value.Is(Type::kFunction) || value.Is(Type::kMethod) ||
         value.IsUndefined();
}
bool IsIterable(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.IsDict() || value.Is(Type::kList) ||
         value.Is(Type::kLoop);
}
bool IsSequence(const Value& value) {
  if (value.Is(Type::kList)) return value.list().IsIndexable();
  return value.IsUndefined() || value.IsString() || value.IsDict();
}

// Whether a text has letters and all of them are as `map` makes them.
template <std::string (*map)(std::string_view), std::string (*other)(std::string_view)>
Result<Value> CheckCase(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this test()").status());
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  return Value::Bool(map(text) == text && other(text) != text);
}

Result<bool> DividesBy(Runtime& runtime, const Value& value, const Value& divisor, int64_t rest) {
  LS_ASSIGN(const Value modulo, Arithmetic(runtime, BinaryOperator::kModulo, value, divisor));
  return Equals(runtime, modulo, Value::Int(rest));
}

template <int64_t rest>
Result<Value> CheckParity(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this test()").status());
  LS_ASSIGN(const bool holds, DividesBy(runtime, self, Value::Int(2), rest));
  return Value::Bool(holds);
}

Result<Value> DivisibleBy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "divisibleby(num)", 1));
  LS_ASSIGN(const bool holds, DividesBy(runtime, self, *p[0], 0));
  return Value::Bool(holds);
}

Result<Value> In(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "in(seq)", 1));
  LS_ASSIGN(const bool contained, Contains(runtime, *p[0], self));
  return Value::Bool(contained);
}

Result<Value> SameAs(Runtime&, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "sameas(other)", 1));
  if (self.type() != p[0]->type()) return Value::Bool(false);
  if (self.Is(Type::kBool)) return Value::Bool(self.boolean() == p[0]->boolean());
  if (self.identity() != nullptr) return Value::Bool(self.identity() == p[0]->identity());
  return Value::Bool(self.IsNone() || (self.IsString() && &self.text() == &p[0]->text()) ||
                     (self.Is(Type::kInt) && self.integer() == p[0]->integer()));
}

template <bool wanted>
Result<Value> CheckEqual(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "eq(other)", 1));
  LS_ASSIGN(const bool equal, Equals(runtime, self, *p[0]));
  return Value::Bool(equal == wanted);
}

bool IsLess(std::partial_ordering order) { return order < 0; }
bool IsLessOrEqual(std::partial_ordering order) { return order <= 0; }
bool IsGreater(std::partial_ordering order) { return order > 0; }
bool IsGreaterOrEqual(std::partial_ordering order) { return order >= 0; }

template <bool (*holds)(std::partial_ordering)>
Result<Value> CheckOrder(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "this comparison(other)", 1));
  LS_ASSIGN(const std::partial_ordering order, Order(runtime, self, *p[0]));
  return Value::Bool(holds(order));
}

template <const Builtin* (*find)(std::string_view)>
Result<Value> IsOffered(Runtime&, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this test()").status());
  return Value::Bool(self.IsString() && find(self.text()) != nullptr);
}

constexpr std::array kTests = {
    Builtin{"defined", Check<IsDefined>},
    Builtin{"undefined", Check<HasType<Type::kUndefined>>},
    Builtin{"none", Check<HasType<Type::kNone>>},
    Builtin{"boolean", Check<HasType<Type::kBool>>},
    Builtin{"true", Check<IsTrue>},
    Builtin{"false", Check<IsFalse>},
    Builtin{"integer", Check<IsWhole>},
    Builtin{"float", Check<HasType<Type::kFloat>>},
    Builtin{"number", Check<IsNumber>},
    Builtin{"string", Check<HasType<Type::kString>>},
    Builtin{"mapping", Check<HasType<Type::kDict>>},
    Builtin{"sequence", Check<IsSequence>},
    Builtin{"iterable", Check<IsIterable>},
    Builtin{"callable", Check<IsCallable>},
    Builtin{"lower", CheckCase<Lower, Upper>},
    Builtin{"upper", CheckCase<Upper, Lower>},
    Builtin{"odd", CheckParity<1>},
    Builtin{"even", CheckParity<0>},
    Builtin{"divisibleby", DivisibleBy},
    Builtin{"in", In},
    Builtin{"sameas", SameAs},
    Builtin{"filter", IsOffered<FindFilter>},
    Builtin{"test", IsOffered<FindTest>},
    Builtin{"eq", CheckEqual<true>},
    Builtin{"equalto", CheckEqual<true>},
    Builtin{"==", CheckEqual<true>},
    Builtin{"ne", CheckEqual<false>},
    Builtin{"!=", CheckEqual<false>},
    Builtin{"lt", CheckOrder<IsLess>},
    Builtin{"lessthan", CheckOrder<IsLess>},
    Builtin{"<", CheckOrder<IsLess>},
    Builtin{"le", CheckOrder<IsLessOrEqual>},
    Builtin{"<=", CheckOrder<IsLessOrEqual>},
    Builtin{"gt", CheckOrder<IsGreater>},
    Builtin{"greaterthan", CheckOrder<IsGreater>},
    Builtin{">", CheckOrder<IsGreater>},
    Builtin{"ge", CheckOrder<IsGreaterOrEqual>},
    Builtin{">=", CheckOrder<IsGreaterOrEqual>},
};

}  // namespace

const Builtin* FindTest(std::string_view name) {
  const auto it =
      std::find_if(kTests.begin(), kTests.end(), [name](const Builtin& test) { return test.name == name; });
  return it == kTests.end() ? nullptr : &*it;
}

}  // namespace longspec::jinja
