// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic, and numbers to and from text.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/status_macros.h"
#include "jinja/characters.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

constexpr std::string_view kOperatorNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

Status Mismatch(BinaryOperator op, const Value& a, const Value& b) {
  return InvalidArgument("unsupported operand type(s) for " +
                         std::string(kOperatorNames[static_cast<size_t>(op)]) + ": '" +
                         std::string(a.TypeName()) + "' and '" + std::string(b.TypeName()) + "'");
}

Status DivisionByZero() { return InvalidArgument("division by zero"); }
Status TooLarge() { return InvalidArgument("integer result does not fit in 64 bits"); }

Result<Value> FloorDivideIntegers(int64_t a, int64_t b) {
  if (b == 0) return DivisionByZero();
  if (b == -1) return a == INT64_MIN ? Result<Value>(TooLarge()) : Value::Int(-a);
  const int64_t quotient = a / b;
  return Value::Int(quotient - (a % b != 0 && (a < 0) != (b < 0)));
}

Result<Value> ModuloIntegers(int64_t a, int64_t b) {
  if (b == 0) return DivisionByZero();
  if (b == -1) return Value::Int(0);
  const int64_t rest = a % b;
  return Value::Int(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

// Division and remainder of floats that agree with each other, the remainder having the divisor's sign.
Result<Value> DivideFloats(double a, double b, bool want_modulo) {
  if (b == 0) return DivisionByZero();
  double modulo = std::fmod(a, b);
  double quotient = (a - modulo) / b;
  if (modulo != 0) {
    if ((b < 0) != (modulo < 0)) {
      modulo += b;
      quotient -= 1;
    }
  } else {
    modulo = std::copysign(0.0, b);
  }
  if (want_modulo) return Value::Float(modulo);
  if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
  const double floored = std::floor(quotient);
  return Value::Float(quotient - floored > 0.5 ? floored + 1 : floored);
}

Result<Value> PowerFloats(double a, double b) {
  if (a == 0 && b < 0) return InvalidArgument("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && std::trunc(b) != b)
    return InvalidArgument("complex numbers are not offered");
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b))
    return InvalidArgument("numerical result out of range");
  return Value::Float(power);
}

Result<Value> PowerIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0) return PowerFloats(static_cast<double>(base), static_cast<double>(exponent));
  int64_t power = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(power, base, &power)) return TooLarge();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return Value::Int(power);
}

Result<Value> ComputeIntegers(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kDivide:
      if (b == 0) return DivisionByZero();
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::kFloorDivide:
      return FloorDivideIntegers(a, b);
    case BinaryOperator::kModulo:
      return ModuloIntegers(a, b);
    case BinaryOperator::kPower:
      return PowerIntegers(a, b);
  }
  if (overflow) return TooLarge();
  return Value::Int(result);
}

Result<Value> ComputeFloats(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Float(a + b);
    case BinaryOperator::kSubtract:
      return Value::Float(a - b);
    case BinaryOperator::kMultiply:
      return Value::Float(a * b);
    case BinaryOperator::kDivide:
      return b == 0 ? Result<Value>(DivisionByZero()) : Value::Float(a / b);
    case BinaryOperator::kFloorDivide:
      return DivideFloats(a, b, false);
    case BinaryOperator::kModulo:
      return DivideFloats(a, b, true);
    case BinaryOperator::kPower:
      return PowerFloats(a, b);
  }
  return Value::Float(0);
}

// Whose result would be an integer, which may need more than 64 bits.
bool IsBigWithWhole(const Value& a, const Value& b) {
  const auto whole = [](const Value& v) { return v.IsInteger() || v.Is(Type::kBigInt); };
  return whole(a) && whole(b) && (a.Is(Type::kBigInt) || b.Is(Type::kBigInt));
}

bool IsRepeatable(const Value& value) {
  return value.IsString() || (value.Is(Type::kList) && value.list().IsIndexable());
}

Result<Value> Concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.IsString() && b.IsString()) {
    if (!runtime.CheckSize(a.text().size() + b.text().size())) return runtime.status();
    return runtime.String(a.text() + b.text());
  }
  const bool lists = a.Is(Type::kList) && b.Is(Type::kList);
  if (!lists || a.list().kind != b.list().kind || !a.list().IsIndexable())
    return Mismatch(BinaryOperator::kAdd, a, b);
  if (!runtime.Charge(a.list().items.size() + b.list().items.size())) return runtime.status();
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return runtime.NewList(std::move(items), a.list().kind);
}

Result<Value> Repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const size_t size = sequence.IsString() ? sequence.text().size() : sequence.list().items.size();
  size_t total = 0;
  const bool overflow =
      __builtin_mul_overflow(size, static_cast<size_t>(std::max<int64_t>(count, 0)), &total);
  if (overflow || total > static_cast<size_t>(INT64_MAX)) total = static_cast<size_t>(INT64_MAX);
  if (sequence.IsString()) {
    if (!runtime.CheckSize(total) || !runtime.ChargeBytes(total)) return runtime.status();
    std::string text;
    text.reserve(total);
    while (text.size() < total) text.append(sequence.text());
    return runtime.String(std::move(text));
  }
  if (!runtime.Charge(total)) return runtime.status();
  std::vector<Value> items;
  const std::vector<Value>& source = sequence.list().items;
  while (items.size() < total) items.insert(items.end(), source.begin(), source.end());
  return runtime.NewList(std::move(items), sequence.list().kind);
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Drops Python's underscores between digits; false if one stands elsewhere.
bool DropUnderscores(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out->push_back(text[i]);
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() && DigitValue(text[i - 1]) < 36 && DigitValue(text[i + 1]) < 36;
    if (!between) return false;
  }
  return true;
}

}  // namespace

Result<Value> Arithmetic(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (a.IsUndefined()) return a.UndefinedError();
  if (op == BinaryOperator::kModulo && a.IsString()) return FormatPercent(runtime, a.text(), b);
  if (b.IsUndefined()) return b.UndefinedError();
  if (a.IsInteger() && b.IsInteger()) return ComputeIntegers(op, a.integer(), b.integer());
  if (op != BinaryOperator::kDivide && IsBigWithWhole(a, b)) return TooLarge();
  if (a.IsNumber() && b.IsNumber()) return ComputeFloats(op, a.number(), b.number());
  if (op == BinaryOperator::kAdd) return Concatenate(runtime, a, b);
  if (op == BinaryOperator::kMultiply && IsRepeatable(a) && b.IsInteger())
    return Repeat(runtime, a, b.integer());
  if (op == BinaryOperator::kMultiply && a.IsInteger() && IsRepeatable(b))
    return Repeat(runtime, b, a.integer());
  return Mismatch(op, a, b);
}

Result<Value> Negate(const Value& value) {
  if (value.IsUndefined()) return value.UndefinedError();
  if (value.Is(Type::kFloat)) return Value::Float(-value.number());
  if (value.Is(Type::kBigInt)) {
    const std::string& digits = value.digits();
    return Value::Whole(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  if (!value.IsInteger()) {
    return InvalidArgument("bad operand type for unary -: '" + std::string(value.TypeName()) + "'");
  }
  if (value.integer() == INT64_MIN) return Value::Whole(std::to_string(INT64_MIN).substr(1));
  return Value::Int(-value.integer());
}

Result<Value> UnaryPlus(const Value& value) {
  if (value.IsUndefined()) return value.UndefinedError();
  if (value.Is(Type::kFloat) || value.Is(Type::kBigInt)) return value;
  if (value.IsInteger()) return Value::Int(value.integer());
  return InvalidArgument("bad operand type for unary +: '" + std::string(value.TypeName()) + "'");
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64] = {};
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.data() + e + 1);
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string text(buffer, static_cast<size_t>(fixed - buffer));
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::optional<Value> ParseWhole(std::string_view text, int base) {
  text = StripSpace(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(2);
      if (text[0] == '_') text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  std::string digits;
  if (!DropUnderscores(text, &digits) || digits.empty()) return std::nullopt;
  int64_t value = 0;
  bool fits = true;
  for (const char c : digits) {
    if (DigitValue(c) >= base) return std::nullopt;
    const int digit = negative ? -DigitValue(c) : DigitValue(c);
    fits = fits && !__builtin_mul_overflow(value, int64_t{base}, &value) &&
           !__builtin_add_overflow(value, int64_t{digit}, &value);
  }
  if (fits) return Value::Int(value);
  return base == 10 ? std::optional(Value::Whole((negative ? "-" : "") + digits)) : std::nullopt;
}

std::optional<int64_t> ParseInteger(std::string_view text, int base) {
  const std::optional<Value> whole = ParseWhole(text, base);
  return whole.has_value() && whole->IsInteger() ? std::optional(whole->integer()) : std::nullopt;
}

std::optional<double> ParseFloat(std::string_view text) {
  std::string digits;
  if (!DropUnderscores(StripSpace(text), &digits)) return std::nullopt;
  std::string_view rest = digits;
  double sign = 1;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    sign = rest[0] == '-' ? -1 : 1;
    rest.remove_prefix(1);
  }
  if (rest.empty()) return std::nullopt;
  const std::string word = Lower(rest);
  if (word == "inf" || word == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (rest[0] != '.' && DigitValue(rest[0]) > 9) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  // Out of range: strtod tells too large (infinite) from too small (zero).
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(rest).c_str(), nullptr);
  return sign * value;
}

}  // namespace longspec::jinja
