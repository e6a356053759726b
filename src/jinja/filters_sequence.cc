// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/ops.h"
#include "jinja/strings.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

Value Empty() { return Value::Undefined("the sequence is empty"); }

Result<std::vector<Value>> PathOf(Runtime& runtime, const Value* attribute) {
  if (attribute == nullptr) return std::vector<Value>();
  return AttributePath(runtime, *attribute);
}

Result<Value> Count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "length()").status());
  LS_ASSIGN(const size_t length, Length(runtime, self));
  return Value::Int(static_cast<int64_t>(length));
}

Result<Value> First(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "first()").status());
  if (self.IsString() && !self.text().empty()) {
    return runtime.String(self.text().substr(0, DecodeAt(self.text(), 0).size));
  }
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  return items.empty() ? Empty() : items.front();
}

Result<Value> Last(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "last()").status());
  if (self.Is(Type::kList) && self.list().kind == ListKind::kGenerator) {
    return InvalidArgument("'generator' object is not reversible");
  }
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  return items.empty() ? Empty() : items.back();
}

Result<Value> ToList(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "list()").status());
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  return runtime.NewList(std::move(items));
}

Result<Value> Reverse(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "reverse()").status());
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  std::reverse(items.begin(), items.end());
  if (self.IsString()) return JoinText(runtime, "", items);
  return runtime.NewList(std::move(items), ListKind::kGenerator);
}

Result<Value> Join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "join(d, attribute)"));
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  LS_ASSIGN(const std::string separator, p.Text(runtime, 0, ""));
  LS_ASSIGN(const std::vector<Value> path, PathOf(runtime, p[1]));
  for (Value& item : items) {
    LS_ASSIGN(item, FollowPath(runtime, item, path));
  }
  return JoinText(runtime, separator, items);
}

Result<std::vector<Value>> Pairs(Runtime& runtime, const Value& self) {
  std::vector<Value> pairs;
  if (self.IsUndefined()) return pairs;
  if (!self.IsDict()) return InvalidArgument("can only get item pairs from a mapping");
  for (const Dict::Entry& entry : self.dict().entries()) {
    pairs.push_back(runtime.NewPair(entry.key, entry.value));
    if (!runtime.ok()) return runtime.status();
  }
  return pairs;
}

Result<Value> Items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "items()").status());
  LS_ASSIGN(std::vector<Value> pairs, Pairs(runtime, self));
  return runtime.NewList(std::move(pairs), ListKind::kGenerator);
}

Result<Value> DictSort(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "dictsort(case_sensitive, by, reverse)"));
  LS_ASSIGN(const std::string by, p.Text(runtime, 1, "key"));
  if (by != "key" && by != "value")
    return InvalidArgument("dictsort sorts by 'key' or 'value', not '" + by + "'");
  if (self.IsUndefined()) return self.UndefinedError();
  LS_ASSIGN(std::vector<Value> pairs, Pairs(runtime, self));
  const size_t position = by == "key" ? 0 : 1;
  const bool case_sensitive = p.Flag(0, false);
  const SortKey key = [&](const Value& pair) -> Result<Value> {
    return FoldCase(runtime, pair.list().items[position], case_sensitive);
  };
  LS_TRY(SortValues(runtime, p.Flag(2, false), key, &pairs));
  return runtime.NewList(std::move(pairs));
}

// The key is a list, one element for each attribute between commas, which also lets equal values of any type
// pass.
Result<Value> Sort(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "sort(reverse, case_sensitive, attribute)"));
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  std::vector<std::vector<Value>> paths;
  if (p[2] != nullptr && p[2]->IsString()) {
    for (std::string_view rest = p[2]->text();;) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const Value attribute = Value::Literal(std::string(rest.substr(0, comma)));
      LS_ASSIGN(std::vector<Value> path, AttributePath(runtime, attribute));
      paths.push_back(std::move(path));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    LS_ASSIGN(std::vector<Value> path, PathOf(runtime, p[2]));
    paths.push_back(std::move(path));
  }
  const bool case_sensitive = p.Flag(1, false);
  const SortKey key = [&](const Value& item) -> Result<Value> {
    std::vector<Value> parts;
    for (const std::vector<Value>& path : paths) {
      LS_ASSIGN(const Value part, FollowPath(runtime, item, path));
      parts.push_back(FoldCase(runtime, part, case_sensitive));
    }
    return runtime.NewList(std::move(parts));
  };
  LS_TRY(SortValues(runtime, p.Flag(0, false), key, &items));
  return runtime.NewList(std::move(items));
}

Result<Value> Unique(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "unique(case_sensitive, attribute)"));
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  LS_ASSIGN(const std::vector<Value> path, PathOf(runtime, p[1]));
  Dict* seen = runtime.NewDict();
  std::vector<Value> kept;
  for (const Value& item : items) {
    LS_ASSIGN(const Value attribute, FollowPath(runtime, item, path));
    const Value key = FoldCase(runtime, attribute, p.Flag(0, false));
    const size_t before = seen->entries().size();
    LS_TRY(seen->Set(runtime, key, Value::None()));
    if (seen->entries().size() > before) kept.push_back(item);
  }
  return runtime.NewList(std::move(kept), ListKind::kGenerator);
}

Result<Value> Extreme(Runtime& runtime, const Value& self, const Parameters& p, bool largest) {
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  LS_ASSIGN(const std::vector<Value> path, PathOf(runtime, p[1]));
  Value best = Empty();
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    LS_ASSIGN(const Value attribute, FollowPath(runtime, items[i], path));
    const Value key = FoldCase(runtime, attribute, p.Flag(0, false));
    if (i > 0) {
      LS_ASSIGN(const std::partial_ordering order, Order(runtime, key, best_key));
      if (largest ? order <= 0 || order == std::partial_ordering::unordered : !(order < 0)) continue;
    }
    best = items[i];
    best_key = key;
  }
  return best;
}

Result<Value> Min(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "min(case_sensitive, attribute)"));
  return Extreme(runtime, self, p, false);
}

Result<Value> Max(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "max(case_sensitive, attribute)"));
  return Extreme(runtime, self, p, true);
}

Result<Value> Sum(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "sum(attribute, start)"));
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  LS_ASSIGN(const std::vector<Value> path, PathOf(runtime, p[0]));
  Value total = p[1] == nullptr ? Value::Int(0) : *p[1];
  if (total.IsString()) return InvalidArgument("sum cannot add texts: use join");
  for (const Value& item : items) {
    LS_ASSIGN(const Value value, FollowPath(runtime, item, path));
    LS_ASSIGN(total, Arithmetic(runtime, BinaryOperator::kAdd, total, value));
  }
  return total;
}

Result<Value> Batch(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "batch(linecount, fill_with)", 1));
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  LS_ASSIGN(const int64_t size, p.Integer(0, 0));
  if (size <= 0) return InvalidArgument("batch needs a positive number of items");
  const size_t step = static_cast<size_t>(size);
  std::vector<Value> batches;
  for (size_t at = 0; at < items.size(); at += std::min(step, items.size() - at)) {
    const size_t count = std::min(step, items.size() - at);
    const auto begin = items.begin() + static_cast<ptrdiff_t>(at);
    std::vector<Value> batch(begin, begin + static_cast<ptrdiff_t>(count));
    if (p[1] != nullptr && !p[1]->IsNone() && count < step) {
      if (!runtime.Charge(step)) return runtime.status();
      batch.resize(step, *p[1]);
    }
    batches.push_back(runtime.NewList(std::move(batch)));
    if (!runtime.ok()) return runtime.status();
  }
  return runtime.NewList(std::move(batches), ListKind::kGenerator);
}

constexpr std::array kSequenceFilters = {
    Builtin{"length", Count},      Builtin{"count", Count},   Builtin{"first", First},
    Builtin{"last", Last},         Builtin{"list", ToList},   Builtin{"reverse", Reverse},
    Builtin{"join", Join},         Builtin{"items", Items},   Builtin{"sort", Sort},
    Builtin{"dictsort", DictSort}, Builtin{"unique", Unique}, Builtin{"min", Min},
    Builtin{"max", Max},           Builtin{"sum", Sum},       Builtin{"batch", Batch},
};

}  // namespace

BuiltinTable SequenceFilters() { return {kSequenceFilters.data(), kSequenceFilters.size()}; }

}  // namespace longspec::jinja
