// SPDX-License-Identifier: Apache-2.0
//
// Python's "text" % arguments.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/status_macros.h"
#include "jinja/characters.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

constexpr int kMaxPrecision = 300;

struct Field {
  std::string key;
  bool has_key = false;
  bool left = false, zero = false, plus = false, space = false, alternative = false;
  size_t width = 0;
  int precision = -1;
  char conversion = 0;
};

// Hands out the arguments: a tuple's in order, or the one value there is.
class Operands {
 public:
  explicit Operands(const Value& value) : value_(value) {
    is_tuple_ = value.Is(Type::kList) && value.list().kind == ListKind::kTuple;
  }

  Result<Value> Next(Runtime& runtime, const Field& field) {
    if (field.has_key) {
      if (!value_.IsDict()) return InvalidArgument("format requires a mapping");
      used_ = 1;
      const Value* found = value_.dict().Find(field.key);
      if (found == nullptr) return InvalidArgument("the text to format has no value for '" + field.key + "'");
      return *found;
    }
    runtime.Charge(1);
    if (is_tuple_ && used_ < value_.list().items.size()) return value_.list().items[used_++];
    if (!is_tuple_ && used_++ == 0) return value_;
    return InvalidArgument("not enough arguments for format string");
  }

  Status Finish() const {
    const bool is_container = value_.IsDict() || (value_.Is(Type::kList) && !is_tuple_);
    if (is_container || used_ >= (is_tuple_ ? value_.list().items.size() : 1)) return {};
    return InvalidArgument("not all arguments converted during string formatting");
  }

 private:
  const Value& value_;
  bool is_tuple_;
  size_t used_ = 0;
};

Status Incomplete() { return InvalidArgument("incomplete format"); }

Result<size_t> ParseDigits(std::string_view format, size_t* at) {
  size_t value = 0;
  for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
    value = value * 10 + static_cast<size_t>(format[*at] - '0');
    if (value > INT32_MAX) return InvalidArgument("the width or precision of a format is too large");
  }
  return value;
}

// Parses what follows a '%'.
Result<Field> ParseField(std::string_view format, size_t* at) {
  Field field;
  if (*at < format.size() && format[*at] == '(') {
    const size_t close = format.find(')', *at);
    if (close == std::string_view::npos) return InvalidArgument("incomplete format key");
    field.has_key = true;
    field.key = format.substr(*at + 1, close - *at - 1);
    *at = close + 1;
  }
  for (; *at < format.size(); ++*at) {
    const char flag = format[*at];
    if (flag == '-')
      field.left = true;
    else if (flag == '0')
      field.zero = true;
    else if (flag == '+')
      field.plus = true;
    else if (flag == ' ')
      field.space = true;
    else if (flag == '#')
      field.alternative = true;
    else
      break;
  }
  LS_ASSIGN(field.width, ParseDigits(format, at));
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    LS_ASSIGN(const size_t precision, ParseDigits(format, at));
    field.precision = static_cast<int>(precision);
  }
  if (*at >= format.size()) return Incomplete();
  field.conversion = format[(*at)++];
  return field;
}

std::string SignOf(const Field& field, bool negative) {
  return negative ? "-" : field.plus ? "+" : field.space ? " " : "";
}

void AppendPadded(const Field& field, std::string_view sign, std::string_view body, bool zeros,
                  TextBuilder* out, Runtime& runtime) {
  const size_t size = CountCodePoints(sign) + CountCodePoints(body);
  const size_t missing = field.width > size ? field.width - size : 0;
  if (!runtime.CheckSize(missing)) return;
  const bool fill_zeros = zeros && field.zero && !field.left;
  if (!field.left && !fill_zeros) out->Append(std::string(missing, ' '));
  out->Append(sign);
  if (fill_zeros) out->Append(std::string(missing, '0'));
  out->Append(body);
  if (field.left) out->Append(std::string(missing, ' '));
}

void AppendDigits(Runtime& runtime, const Field& field, bool negative, std::string digits, TextBuilder* out) {
  const size_t wanted = static_cast<size_t>(std::clamp(field.precision, 0, kMaxPrecision));
  if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
  std::string sign = SignOf(field, negative);
  if (field.alternative && field.conversion == 'o') sign += "0o";
  if (field.alternative && (field.conversion == 'x' || field.conversion == 'X')) sign += "0x";
  if (field.conversion == 'X') {
    digits = Upper(digits);
    sign = Upper(sign);
  }
  AppendPadded(field, sign, digits, true, out, runtime);
}

Status AppendInteger(Runtime& runtime, const Field& field, const Value& value, TextBuilder* out) {
  const bool decimal = field.conversion == 'd' || field.conversion == 'i' || field.conversion == 'u';
  const bool truncatable = decimal && value.Is(Type::kFloat) && std::fabs(value.number()) < 9.2e18;
  if (decimal && value.Is(Type::kBigInt)) {
    const bool negative = value.digits()[0] == '-';
    AppendDigits(runtime, field, negative, value.digits().substr(negative ? 1 : 0), out);
    return {};
  }
  if (!value.IsInteger() && !truncatable) {
    return InvalidArgument("the format " + std::string(1, field.conversion) + " needs a number, not " +
                           std::string(value.TypeName()));
  }
  const int64_t number = value.IsInteger() ? value.integer() : static_cast<int64_t>(value.number());
  const uint64_t magnitude = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const int base = decimal ? 10 : field.conversion == 'o' ? 8 : 16;
  char buffer[32] = {};
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr;
  AppendDigits(runtime, field, number < 0, std::string(buffer, end), out);
  return {};
}

Status AppendFloat(Runtime& runtime, const Field& field, const Value& value, TextBuilder* out) {
  if (!value.IsNumber()) {
    return InvalidArgument("must be real number, not " + std::string(value.TypeName()));
  }
  const double number = value.number();
  const std::string format = std::string(field.alternative ? "%#" : "%") + ".*" + field.conversion;
  const int precision = field.precision < 0 ? 6 : std::min(field.precision, kMaxPrecision);
  char buffer[800] = {};
  std::snprintf(buffer, sizeof buffer, format.c_str(), precision, std::fabs(number));
  AppendPadded(field, SignOf(field, std::signbit(number) && !std::isnan(number)), buffer, true, out, runtime);
  return {};
}

Status AppendString(Runtime& runtime, const Field& field, const Value& value, TextBuilder* out) {
  std::string text;
  if (field.conversion == 'r' && value.IsString()) {
    if (!runtime.ChargeBytes(2 * value.text().size())) return runtime.status();
    text = QuoteText(value.text());
  } else {
    LS_ASSIGN(text, ToText(runtime, value));
  }
  if (field.precision >= 0) text.resize(ByteOffset(text, static_cast<size_t>(field.precision)));
  AppendPadded(field, "", text, false, out, runtime);
  return {};
}

Status AppendCharacter(Runtime& runtime, const Field& field, const Value& value, TextBuilder* out) {
  std::string text;
  if (value.IsString() && CountCodePoints(value.text()) == 1) {
    text = value.text();
  } else if (value.IsInteger() && value.integer() >= 0 && value.integer() <= 0x10FFFF) {
    AppendCodePoint(static_cast<char32_t>(value.integer()), &text);
  } else {
    return InvalidArgument("%c requires an int or a string of one character");
  }
  AppendPadded(field, "", text, false, out, runtime);
  return {};
}

Status AppendField(Runtime& runtime, const Field& field, Operands* operands, TextBuilder* out) {
  if (field.conversion == '%') {
    out->Append("%");
    return {};
  }
  if (std::string_view("srdiuxXofFeEgGc").find(field.conversion) == std::string_view::npos) {
    return InvalidArgument("unsupported format character '" + std::string(1, field.conversion) + "'");
  }
  LS_ASSIGN(const Value value, operands->Next(runtime, field));
  switch (field.conversion) {
    case 's':
    case 'r':
      return AppendString(runtime, field, value, out);
    case 'c':
      return AppendCharacter(runtime, field, value, out);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return AppendInteger(runtime, field, value, out);
    default:
      return AppendFloat(runtime, field, value, out);
  }
}

}  // namespace

Result<Value> FormatPercent(Runtime& runtime, std::string_view format, const Value& arguments) {
  if (!runtime.ChargeBytes(format.size())) return runtime.status();
  TextBuilder out(runtime);
  Operands operands(arguments);
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.find('%', at), format.size());
    out.Append(format.substr(at, percent - at));
    if (percent == format.size()) break;
    at = percent + 1;
    LS_ASSIGN(const Field field, ParseField(format, &at));
    LS_TRY(AppendField(runtime, field, &operands, &out));
    if (!runtime.ok()) return runtime.status();
  }
  LS_TRY(operands.Finish());
  return runtime.String(out.Take());
}

}  // namespace longspec::jinja
