// SPDX-License-Identifier: Apache-2.0
#include "jinja/ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/characters.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

Status NotOrdered(const Value& a, const Value& b) {
  return InvalidArgument("'<' not supported between instances of '" + std::string(a.TypeName()) + "' and '" +
                         std::string(b.TypeName()) + "'");
}

// Of integers beyond 64 bits, or one with one that has them.
std::strong_ordering OrderBig(const Value& a, const Value& b) {
  // What it is beside a smaller one: its sign, and how many digits it has.
  const auto size = [](const Value& v) {
    if (!v.Is(Type::kBigInt)) return ptrdiff_t{0};
    const auto n = static_cast<ptrdiff_t>(v.digits().size());
    return v.digits()[0] == '-' ? -n : n;
  };
  if (size(a) != size(b) || size(a) == 0) return size(a) <=> size(b);
  return size(a) > 0 ? a.digits() <=> b.digits() : b.digits() <=> a.digits();
}

std::partial_ordering OrderNumbers(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return a.integer() <=> b.integer();
  if (a.Is(Type::kFloat) || b.Is(Type::kFloat)) return a.number() <=> b.number();
  return OrderBig(a, b);
}

Result<bool> ListsEqual(Runtime& runtime, const List& a, const List& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || !a.IsIndexable() || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    LS_ASSIGN(const bool equal, Equals(runtime, a.items[i], b.items[i]));
    if (!equal) return false;
  }
  return true;
}

Result<bool> DictsEqual(Runtime& runtime, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries().size() != b.entries().size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    LS_ASSIGN(const Value* other, b.Find(runtime, entry.key));
    if (other == nullptr) return false;
    LS_ASSIGN(const bool equal, Equals(runtime, entry.value, *other));
    if (!equal) return false;
  }
  return true;
}

Result<std::partial_ordering> OrderLists(Runtime& runtime, const List& a, const List& b) {
  const size_t common = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < common; ++i) {
    LS_ASSIGN(const bool equal, Equals(runtime, a.items[i], b.items[i]));
    if (!equal) return Order(runtime, a.items[i], b.items[i]);
  }
  return std::partial_ordering(a.items.size() <=> b.items.size());
}

Value MissingAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  std::string type = object.IsNone() ? "None" : std::string(object.TypeName()) + " object";
  runtime.ChargeBytes(name.size());
  return Value::Undefined(InQuotes(type) + " has no attribute " + QuoteText(name));
}

Value MissingElement(const Value& object, const Value& key) {
  const std::string element = key.IsInteger() ? std::to_string(key.integer()) : std::string(key.TypeName());
  return Value::Undefined(std::string(object.TypeName()) + " object has no element " + element);
}

Result<Value> LoopAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  const Loop& loop = object.loop();
  const int64_t index0 = static_cast<int64_t>(loop.index0);
  const int64_t length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::Int(index0 + 1);
  if (name == "index0") return Value::Int(index0);
  if (name == "revindex") return Value::Int(length - index0);
  if (name == "revindex0") return Value::Int(length - index0 - 1);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(index0 + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    return index0 > 0 && index0 <= length ? loop.items[loop.index0 - 1]
                                          : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index0 + 1 < length ? loop.items[loop.index0 + 1] : Value::Undefined("there is no next item");
  }
  return MissingAttribute(runtime, object, name);
}

// The index a Python subscript means, or nothing if it is out of range.
std::optional<size_t> ResolveIndex(int64_t index, size_t size) {
  const int64_t length = static_cast<int64_t>(size);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<size_t>(index);
}

Result<Value> TextItem(Runtime& runtime, const Value& object, const Value& key) {
  const std::string& text = object.text();
  if (!runtime.ChargeBytes(text.size())) return runtime.status();
  const std::optional<size_t> index = ResolveIndex(key.integer(), CountCodePoints(text));
  if (!index.has_value()) return MissingElement(object, key);
  const size_t at = ByteOffset(text, *index);
  return runtime.String(text.substr(at, DecodeAt(text, at).size));
}

struct SliceRange {
  int64_t start, stop, step;
};

Status SliceBound(const Value& bound, std::optional<int64_t>* out) {
  if (bound.IsNone()) return {};
  if (!bound.IsInteger()) return InvalidArgument("slice indices must be integers or None");
  *out = bound.integer();
  return {};
}

// Python's slice.indices().
Result<SliceRange> ResolveSlice(const Value& start, const Value& stop, const Value& step, int64_t length) {
  std::optional<int64_t> from, to, by;
  LS_TRY(SliceBound(start, &from));
  LS_TRY(SliceBound(stop, &to));
  LS_TRY(SliceBound(step, &by));
  SliceRange range{};
  range.step = std::max(by.value_or(1), -INT64_MAX);
  if (range.step == 0) return InvalidArgument("slice step cannot be zero");
  const bool backward = range.step < 0;
  const int64_t lowest = backward ? -1 : 0;
  const int64_t highest = backward ? length - 1 : length;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound.has_value()) return otherwise;
    if (*bound < 0) return std::max(*bound + length, lowest);
    return std::min(*bound, highest);
  };
  range.start = clamp(from, backward ? highest : lowest);
  range.stop = clamp(to, backward ? lowest : highest);
  return range;
}

// The positions a slice selects, in order; small even if the step is huge.
std::vector<size_t> SlicePositions(const SliceRange& range) {
  std::vector<size_t> positions;
  int64_t at = range.start;
  while (range.step > 0 ? at < range.stop : at > range.stop) {
    positions.push_back(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, range.step, &at)) break;
  }
  return positions;
}

Result<Value> SliceText(Runtime& runtime, const std::string& text, const Value& start, const Value& stop,
                        const Value& step) {
  if (!runtime.ChargeBytes(text.size())) return runtime.status();
  const int64_t length = static_cast<int64_t>(CountCodePoints(text));
  LS_ASSIGN(const SliceRange range, ResolveSlice(start, stop, step, length));
  if (range.step == 1) {
    const size_t from = ByteOffset(text, static_cast<size_t>(range.start));
    const size_t count = static_cast<size_t>(std::max(range.stop - range.start, int64_t{0}));
    return runtime.String(text.substr(from, ByteOffset(std::string_view(text).substr(from), count)));
  }
  if (!runtime.Charge(text.size())) return runtime.status();
  const std::vector<std::string_view> characters = SplitCodePoints(text);
  std::string selected;
  for (const size_t position : SlicePositions(range)) selected.append(characters[position]);
  return runtime.String(std::move(selected));
}

Result<std::vector<Value>> IterateList(Runtime& runtime, List& list) {
  if (!runtime.Charge(list.items.size())) return runtime.status();
  if (list.kind == ListKind::kGenerator) return std::exchange(list.items, {});
  return list.items;
}

Result<std::vector<Value>> IterateText(Runtime& runtime, const std::string& text) {
  if (!runtime.Charge(4 * text.size())) return runtime.status();
  std::vector<Value> characters;
  for (const std::string_view c : SplitCodePoints(text)) characters.push_back(Value::Literal(std::string(c)));
  return characters;
}

}  // namespace

bool Truthy(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.integer() != 0;
    case Type::kBigInt:
      return true;
    case Type::kFloat:
      return value.number() != 0;
    case Type::kString:
      return !value.text().empty();
    case Type::kList:
      return value.list().kind == ListKind::kGenerator || !value.list().items.empty();
    case Type::kDict:
      return !value.dict().entries().empty();
    default:
      return true;
  }
}

Result<bool> Equals(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Level level(runtime);
  if (!level || !runtime.Charge(1)) return runtime.status();
  if (a.IsNumber() && b.IsNumber()) return OrderNumbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      if (!runtime.ChargeBytes(std::min(a.text().size(), b.text().size()))) return runtime.status();
      return a.text() == b.text();
    case Type::kList:
      return ListsEqual(runtime, a.list(), b.list());
    case Type::kDict:
      return DictsEqual(runtime, a.dict(), b.dict());
    default:
      return a.identity() == b.identity();
  }
}

Result<std::partial_ordering> Order(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Level level(runtime);
  if (!level || !runtime.Charge(1)) return runtime.status();
  if (a.IsUndefined()) return a.UndefinedError();
  if (b.IsUndefined()) return b.UndefinedError();
  if (a.IsNumber() && b.IsNumber()) return OrderNumbers(a, b);
  if (a.IsString() && b.IsString()) {
    if (!runtime.ChargeBytes(std::min(a.text().size(), b.text().size()))) return runtime.status();
    return std::partial_ordering(a.text() <=> b.text());  // byte order is code point order
  }
  if (a.Is(Type::kList) && b.Is(Type::kList) && a.list().kind == b.list().kind && a.list().IsIndexable()) {
    return OrderLists(runtime, a.list(), b.list());
  }
  return NotOrdered(a, b);
}

Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::kUndefined:
      return false;
    case Type::kString:
      if (!item.IsString()) {
        return InvalidArgument("'in <string>' requires string as left operand, not " +
                               std::string(item.TypeName()));
      }
      if (!runtime.ChargeBytes(container.text().size())) return runtime.status();
      return FindText(container.text(), item.text()) != std::string_view::npos;
    case Type::kDict: {
      LS_ASSIGN(const Value* found, container.dict().Find(runtime, item));
      return found != nullptr;
    }
    case Type::kList:
      for (const Value& element : container.list().items) {
        LS_ASSIGN(const bool equal, Equals(runtime, element, item));
        if (equal) return true;
      }
      return false;
    default:
      return InvalidArgument("argument of type '" + std::string(container.TypeName()) + "' is not iterable");
  }
}

Result<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.IsUndefined()) return object.UndefinedError();
  if (const Builtin* method = FindMethod(object, name); method != nullptr)
    return Value::Method(object, method);
  if (object.IsDict()) {
    if (const Value* found = object.dict().Find(name); found != nullptr) return *found;
  }
  if (object.Is(Type::kNamespace)) {
    const auto it = object.name_space().attributes.find(name);
    if (it != object.name_space().attributes.end()) return it->second;
  }
  if (object.Is(Type::kLoop)) return LoopAttribute(runtime, object, name);
  return MissingAttribute(runtime, object, name);
}

Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.IsUndefined()) return object.UndefinedError();
  if (object.IsDict() && !(key.Is(Type::kList) && key.list().kind != ListKind::kTuple) && !key.IsDict()) {
    LS_ASSIGN(const Value* found, object.dict().Find(runtime, key));
    if (found != nullptr) return *found;
  }
  if (key.IsInteger() && object.IsString()) return TextItem(runtime, object, key);
  if (key.IsInteger() && object.Is(Type::kList) && object.list().IsIndexable()) {
    const std::optional<size_t> index = ResolveIndex(key.integer(), object.list().items.size());
    return index.has_value() ? object.list().items[*index] : MissingElement(object, key);
  }
  if (key.IsString()) {
    if (!runtime.ChargeBytes(key.text().size())) return runtime.status();
    return GetAttribute(runtime, object, key.text());
  }
  return MissingElement(object, key);
}

Result<Value> GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                       const Value& step) {
  if (object.IsUndefined()) return object.UndefinedError();
  const bool is_list = object.Is(Type::kList) && object.list().IsIndexable();
  if (!is_list && !object.IsString())
    return Value::Undefined(std::string(object.TypeName()) + " cannot be sliced");
  if (is_list) {
    const std::vector<Value>& items = object.list().items;
    LS_ASSIGN(const SliceRange range, ResolveSlice(start, stop, step, static_cast<int64_t>(items.size())));
    if (!runtime.Charge(items.size())) return runtime.status();
    std::vector<Value> selected;
    for (const size_t position : SlicePositions(range)) selected.push_back(items[position]);
    return runtime.NewList(std::move(selected), object.list().kind);
  }
  return SliceText(runtime, object.text(), start, stop, step);
}

Result<size_t> Length(Runtime& runtime, const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return size_t{0};
    case Type::kString:
      if (!runtime.ChargeBytes(value.text().size())) return runtime.status();
      return CountCodePoints(value.text());
    case Type::kDict:
      return value.dict().entries().size();
    case Type::kLoop:
      return value.loop().items.size();
    case Type::kList:
      if (value.list().kind != ListKind::kGenerator) return value.list().items.size();
      break;
    default:
      break;
  }
  return InvalidArgument("object of type '" + std::string(value.TypeName()) + "' has no len()");
}

Result<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return std::vector<Value>();
    case Type::kList:
      return IterateList(runtime, value.list());
    case Type::kString:
      return IterateText(runtime, value.text());
    case Type::kDict: {
      if (!runtime.Charge(value.dict().entries().size())) return runtime.status();
      std::vector<Value> keys;
      for (const Dict::Entry& entry : value.dict().entries()) keys.push_back(entry.key);
      return keys;
    }
    default:
      return InvalidArgument(InQuotes(value.TypeName()) + " object is not iterable");
  }
}

namespace {

struct Keyed {
  Value key;
  size_t position;
};

// Merges the sorted runs [begin, middle) and [middle, end).
Status Merge(Runtime& runtime, bool reverse, const std::vector<Keyed>& from, size_t begin, size_t middle,
             size_t end, std::vector<Keyed>* to) {
  size_t left = begin;
  size_t right = middle;
  for (size_t out = begin; out < end; ++out) {
    bool take_right = left == middle;
    if (left < middle && right < end) {
      const Value& a = from[left].key;
      const Value& b = from[right].key;
      LS_ASSIGN(const std::partial_ordering order, reverse ? Order(runtime, a, b) : Order(runtime, b, a));
      take_right = order < 0;
    }
    (*to)[out] = from[take_right ? right++ : left++];
  }
  return {};
}

}  // namespace

Status SortValues(Runtime& runtime, bool reverse, const SortKey& key, std::vector<Value>* values) {
  std::vector<Keyed> keyed;
  if (!runtime.Charge(4 * values->size())) return runtime.status();
  for (const Value& value : *values) {
    LS_ASSIGN(Value k, key(value));
    keyed.push_back({std::move(k), keyed.size()});
  }
  std::vector<Keyed> merged = keyed;
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keyed.size());
      const size_t end = std::min(begin + 2 * width, keyed.size());
      LS_TRY(Merge(runtime, reverse, keyed, begin, middle, end, &merged));
    }
    std::swap(keyed, merged);
  }
  std::vector<Value> sorted;
  sorted.reserve(values->size());
  for (const Keyed& item : keyed) sorted.push_back((*values)[item.position]);
  *values = std::move(sorted);
  return {};
}

}  // namespace longspec::jinja
