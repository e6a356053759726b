// SPDX-License-Identifier: Apache-2.0
//
// What Python's operators and protocols do with values: truth, equality, order, arithmetic, str() and repr(),
// attributes, subscripts and iteration. Errors are those of Python and Jinja, in their words where that is
// clear.
#pragma once

#include <compare>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/value.h"
#include "longspec/status.h"

namespace longspec::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

bool Truthy(const Value& value);
Result<bool> Equals(Runtime& runtime, const Value& a, const Value& b);
// unordered where a NaN is involved; an error for types that Python does not order.
Result<std::partial_ordering> Order(Runtime& runtime, const Value& a, const Value& b);
Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

Result<Value> Arithmetic(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);
Result<Value> Negate(const Value& value);
Result<Value> UnaryPlus(const Value& value);

// str(); an undefined value is empty text.
Result<std::string> ToText(Runtime& runtime, const Value& value);
// str() of a value whose text must not be copied when it already is a string: appends.
Status AppendText(Runtime& runtime, const Value& value, TextBuilder* out);
std::string FormatFloat(double value);         // repr()
std::string QuoteText(std::string_view text);  // repr() of a string

// foo.name and foo[key] as Jinja's environment defines them; what is not there is undefined.
Result<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name);
Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);
Result<Value> GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                       const Value& step);

// len(); an error for what has none.
Result<size_t> Length(Runtime& runtime, const Value& value);
// The elements as iteration sees them: characters, keys, elements. Empties a generator.
Result<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);

// The number in a text, as int(text, base) and float(text) read it; ParseInteger only those of 64 bits.
std::optional<Value> ParseWhole(std::string_view text, int base);
std::optional<int64_t> ParseInteger(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

// "text" % arguments (format.cc).
Result<Value> FormatPercent(Runtime& runtime, std::string_view format, const Value& arguments);

using SortKey = std::function<Result<Value>(const Value&)>;

// A stable sort whose comparison may fail and need not be consistent, as values of a template's choice are:
// sorted(values, key=key, reverse=reverse): equal values keep their order either way.
Status SortValues(Runtime& runtime, bool reverse, const SortKey& key, std::vector<Value>* values);

}  // namespace longspec::jinja
