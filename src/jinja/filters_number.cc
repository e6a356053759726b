// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

Result<Value> Truncate(double number) {
  if (std::isnan(number)) return InvalidArgument("cannot convert float NaN to integer");
  if (number < -kTwoTo63 || number >= kTwoTo63)
    return InvalidArgument("a float does not fit in an integer of 64 bits");
  return Value::Int(static_cast<int64_t>(number));
}

Result<Value> Int(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "int(default, base)"));
  LS_ASSIGN(const int64_t base, p.Integer(1, 10));
  if (base != 0 && (base < 2 || base > 36)) return InvalidArgument("int needs a base from 2 to 36, or 0");
  if (self.IsUndefined()) return self.UndefinedError();
  if (self.IsInteger()) return Value::Int(self.integer());
  if (self.Is(Value::Type::kBigInt)) return self;
  if (self.Is(Value::Type::kFloat) && !std::isnan(self.number())) return Truncate(self.number());
  if (self.IsString()) {
    if (!runtime.ChargeBytes(self.text().size())) return runtime.status();
    if (auto number = ParseWhole(self.text(), static_cast<int>(base))) return *std::move(number);
    const std::optional<double> number = ParseFloat(self.text());
    if (number.has_value() && std::isfinite(*number)) return Truncate(*number);
  }
  return p[0] == nullptr ? Value::Int(0) : *p[0];
}

Result<Value> Float(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "float(default)"));
  if (self.IsUndefined()) return self.UndefinedError();
  if (self.IsNumber()) return Value::Float(self.number());
  if (self.IsString()) {
    if (!runtime.ChargeBytes(self.text().size())) return runtime.status();
    if (const auto number = ParseFloat(self.text())) return Value::Float(*number);
  }
  return p[0] == nullptr ? Value::Float(0) : *p[0];
}

Result<Value> Abs(Runtime&, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "abs()").status());
  if (self.IsUndefined()) return self.UndefinedError();
  if (self.Is(Value::Type::kFloat)) return Value::Float(std::fabs(self.number()));
  if (self.Is(Value::Type::kBigInt)) return self.digits()[0] == '-' ? Negate(self) : Result<Value>(self);
  if (self.IsInteger()) return self.integer() < 0 ? Negate(self) : Value::Int(self.integer());
  return InvalidArgument("bad operand type for abs(): '" + std::string(self.TypeName()) + "'");
}

// round() of Python: the decimal nearest to the exact value, ties to even.
double RoundDecimal(double number, int64_t precision) {
  if (!std::isfinite(number) || precision > 308) return number;
  if (precision < -308) return std::copysign(0.0, number);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(number / unit) * unit;
  }
  char buffer[700] = {};
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), number);
  return std::strtod(buffer, nullptr);
}

// round() of an integer changes it only left of the decimal point.
Result<Value> RoundInteger(int64_t number, int64_t precision) {
  if (precision >= 0) return Value::Int(number);
  if (precision < -18) return Value::Int(0);
  int64_t unit = 1;
  for (int64_t i = precision; i < 0; ++i) unit *= 10;
  const int64_t rest = number % unit;
  const int64_t twice = 2 * std::abs(rest) - unit;  // at most 10^18
  const int64_t down = number - rest;
  const bool away = twice > 0 || (twice == 0 && (down / unit) % 2 != 0);
  int64_t rounded = 0;
  if (__builtin_add_overflow(down, away ? (number < 0 ? -unit : unit) : 0, &rounded)) {
    return InvalidArgument("integer result does not fit in 64 bits");
  }
  return Value::Int(rounded);
}

Result<Value> Round(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "round(precision, method)"));
  LS_ASSIGN(const int64_t precision, p.Integer(0, 0));
  LS_ASSIGN(const std::string method, p.Text(runtime, 1, "common"));
  if (self.IsUndefined()) return self.UndefinedError();
  if (!self.IsNumber()) return InvalidArgument("round needs a number, not " + std::string(self.TypeName()));
  if (method == "common") {
    if (self.IsInteger()) return RoundInteger(self.integer(), precision);
    if (self.Is(Value::Type::kBigInt) && precision >= 0) return self;
    return Value::Float(RoundDecimal(self.number(), precision));
  }
  if (method != "ceil" && method != "floor") {
    return InvalidArgument("round knows the methods common, ceil and floor, not '" + method + "'");
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.number() * unit;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr std::array kNumberFilters = {
    Builtin{"int", Int},
    Builtin{"float", Float},
    Builtin{"abs", Abs},
    Builtin{"round", Round},
};

}  // namespace

BuiltinTable NumberFilters() { return {kNumberFilters.data(), kNumberFilters.size()}; }

}  // namespace longspec::jinja
