// SPDX-License-Identifier: Apache-2.0
//
// The methods of strings, dictionaries, lists and `loop`.
#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/ops.h"
#include "jinja/strings.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

Result<std::string_view> NeedText(const Parameters& p, size_t i, std::string_view method) {
  if (p[i]->IsString()) return std::string_view(p[i]->text());
  return InvalidArgument(std::string(method) + " needs a string, not " + std::string(p[i]->TypeName()));
}

template <std::string (*map)(std::string_view)>
Result<Value> MapSelf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this method()").status());
  return runtime.String(map(self.text()));
}

template <Side side>
Result<Value> Strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "strip(chars)"));
  return StripText(runtime, self.text(), p[0], side);
}

bool HasAffix(std::string_view text, std::string_view affix, bool at_start) {
  if (affix.size() > text.size()) return false;
  return text.substr(at_start ? 0 : text.size() - affix.size(), affix.size()) == affix;
}

// One prefix (or suffix), or a tuple of them.
template <bool at_start>
Result<Value> CheckAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "startswith(prefix)", 1));
  std::vector<Value> affixes = {*p[0]};
  if (p[0]->Is(Type::kList) && p[0]->list().kind == ListKind::kTuple) {
    LS_ASSIGN(affixes, Iterate(runtime, *p[0]));
  }
  for (const Value& affix : affixes) {
    if (!affix.IsString()) {
      return InvalidArgument("startswith and endswith need a string or a tuple of strings, not " +
                             std::string(affix.TypeName()));
    }
    if (!runtime.ChargeBytes(affix.text().size())) return runtime.status();
    if (HasAffix(self.text(), affix.text(), at_start)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_start>
Result<Value> RemoveAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "removeprefix(prefix)", 1));
  LS_ASSIGN(const std::string_view affix, NeedText(p, 0, at_start ? "removeprefix" : "removesuffix"));
  if (!runtime.ChargeBytes(affix.size())) return runtime.status();
  const std::string& text = self.text();
  if (!HasAffix(text, affix, at_start)) return self;
  return runtime.String(at_start ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size()));
}

// Appends a piece of a text; false once the limits are passed.
bool AddPiece(Runtime& runtime, std::string_view piece, std::vector<Value>* pieces) {
  pieces->push_back(runtime.String(std::string(piece)));
  return runtime.Charge(2);
}

void SplitBySpace(Runtime& runtime, std::string_view text, int64_t limit, std::vector<Value>* pieces) {
  while (true) {
    text = StripSpace(text, Side::kLeft);
    if (text.empty()) return;
    size_t end = 0;
    while (end < text.size() && !IsSpace(DecodeAt(text, end).value)) end += DecodeAt(text, end).size;
    if (limit == 0) end = text.size();  // the rest, with the white space at its end
    if (!AddPiece(runtime, text.substr(0, end), pieces)) return;
    text.remove_prefix(end);
    --limit;
  }
}

void SplitBySpaceFromRight(Runtime& runtime, std::string_view text, int64_t limit,
                           std::vector<Value>* pieces) {
  while (true) {
    text = StripSpace(text, Side::kRight);
    if (text.empty()) break;
    size_t start = 0;
    if (limit != 0) {
      const std::string_view word_end = text;
      for (size_t at = 0; at < word_end.size(); at += DecodeAt(word_end, at).size) {
        if (IsSpace(DecodeAt(word_end, at).value)) start = at + DecodeAt(word_end, at).size;
      }
    }
    if (!runtime.ChargeBytes(text.size()) || !AddPiece(runtime, text.substr(start), pieces)) break;
    text = text.substr(0, start);
    --limit;
  }
  std::reverse(pieces->begin(), pieces->end());
}

void SplitByText(Runtime& runtime, std::string_view text, std::string_view separator, int64_t limit,
                 std::vector<Value>* pieces) {
  size_t start = 0;
  for (; limit != 0; --limit) {
    const size_t at = FindText(text, separator, start);
    if (at == std::string_view::npos) break;
    if (!AddPiece(runtime, text.substr(start, at - start), pieces)) return;
    start = at + separator.size();
  }
  AddPiece(runtime, text.substr(start), pieces);
}

void SplitByTextFromRight(Runtime& runtime, std::string_view text, std::string_view separator, int64_t limit,
                          std::vector<Value>* pieces) {
  // All the searches together: none looks again at what the one before it passed.
  if (!runtime.ChargeProduct(text.size(), separator.size())) return;
  for (; limit != 0; --limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    if (!AddPiece(runtime, text.substr(at + separator.size()), pieces)) return;
    text = text.substr(0, at);
  }
  AddPiece(runtime, text, pieces);
  std::reverse(pieces->begin(), pieces->end());
}

template <bool from_right>
Result<Value> Split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "split(sep, maxsplit)"));
  LS_ASSIGN(const int64_t limit, p.Integer(1, -1));
  if (!runtime.ChargeBytes(self.text().size())) return runtime.status();
  std::vector<Value> pieces;
  if (p[0] == nullptr || p[0]->IsNone()) {
    (from_right ? SplitBySpaceFromRight : SplitBySpace)(runtime, self.text(), limit, &pieces);
  } else {
    LS_ASSIGN(const std::string_view separator, NeedText(p, 0, "split"));
    if (separator.empty()) return InvalidArgument("split needs a separator that is not empty");
    (from_right ? SplitByTextFromRight : SplitByText)(runtime, self.text(), separator, limit, &pieces);
  }
  return runtime.NewList(std::move(pieces));
}

Result<Value> SplitLinesOf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "splitlines()").status());
  LS_ASSIGN(const std::vector<std::string_view> lines, SplitLinesMetered(runtime, self.text()));
  std::vector<Value> pieces;
  for (const std::string_view line : lines) {
    if (!AddPiece(runtime, line, &pieces)) return runtime.status();
  }
  return runtime.NewList(std::move(pieces));
}

Result<Value> Partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "partition(sep)", 1));
  LS_ASSIGN(const std::string_view separator, NeedText(p, 0, "partition"));
  if (separator.empty()) return InvalidArgument("partition needs a separator that is not empty");
  if (!runtime.ChargeBytes(self.text().size())) return runtime.status();
  const std::string& text = self.text();
  const size_t at = std::min(FindText(text, separator), text.size());
  const bool found = at < text.size();
  std::vector<Value> parts = {runtime.String(text.substr(0, at)),
                              runtime.String(std::string(found ? separator : "")),
                              runtime.String(found ? text.substr(at + separator.size()) : "")};
  return runtime.NewList(std::move(parts), ListKind::kTuple);
}

Result<Value> ReplaceIn(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "replace(old, new, count)", 2));
  LS_ASSIGN(const std::string_view old_text, NeedText(p, 0, "replace"));
  LS_ASSIGN(const std::string_view new_text, NeedText(p, 1, "replace"));
  LS_ASSIGN(const int64_t count, p.Integer(2, -1));
  return ReplaceText(runtime, self.text(), old_text, new_text, count);
}

Result<Value> JoinItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "join(iterable)", 1));
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime, *p[0]));
  for (const Value& item : items) {
    if (item.IsString()) continue;
    return InvalidArgument("join needs strings, not " + std::string(item.TypeName()));
  }
  return JoinText(runtime, self.text(), items);
}

// The position, counted in characters, of a text: -1 if it is not there.
Result<int64_t> Position(Runtime& runtime, const Value& self, const Arguments& arguments, bool last) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "find(sub)", 1));
  LS_ASSIGN(const std::string_view needle, NeedText(p, 0, "find"));
  const std::string_view text = self.text();
  // Searching from the right takes the product of the lengths at worst.
  if (!runtime.ChargeProduct(text.size(), last ? needle.size() : 0)) return runtime.status();
  const size_t at = last ? text.rfind(needle) : FindText(text, needle);
  if (at == std::string_view::npos) return int64_t{-1};
  return static_cast<int64_t>(CountCodePoints(text.substr(0, at)));
}

template <bool last>
Result<Value> Find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const int64_t position, Position(runtime, self, arguments, last));
  return Value::Int(position);
}

Result<Value> TextIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const int64_t position, Position(runtime, self, arguments, false));
  if (position < 0) return InvalidArgument("substring not found");
  return Value::Int(position);
}

Result<Value> TextCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "count(sub)", 1));
  LS_ASSIGN(const std::string_view needle, NeedText(p, 0, "count"));
  if (!runtime.ChargeBytes(self.text().size())) return runtime.status();
  return Value::Int(static_cast<int64_t>(CountText(self.text(), needle)));
}

template <bool (*holds)(char32_t)>
Result<Value> CheckCharacters(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this method()").status());
  const std::string& text = self.text();
  if (!runtime.ChargeBytes(text.size())) return runtime.status();
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (!holds(c.value)) return Value::Bool(false);
    at += c.size;
  }
  return Value::Bool(!text.empty());
}

bool IsDecimalDigit(char32_t c) { return c >= '0' && c <= '9'; }

Result<Value> FormatSelf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

Result<Value> Get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "get(key, default)", 1));
  LS_ASSIGN(const Value* found, self.dict().Find(runtime, *p[0]));
  if (found != nullptr) return *found;
  return p[1] == nullptr ? Value::None() : *p[1];
}

template <ListKind kind>
Result<Value> View(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this method()").status());
  std::vector<Value> items;
  for (const Dict::Entry& entry : self.dict().entries()) {
    items.push_back(kind == ListKind::kItems  ? runtime.NewPair(entry.key, entry.value)
                    : kind == ListKind::kKeys ? entry.key
                                              : entry.value);
    if (!runtime.Charge(1)) return runtime.status();
  }
  return runtime.NewList(std::move(items), kind);
}

Result<Value> Append(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "append(object)", 1));
  if (!runtime.Charge(2)) return runtime.status();
  self.list().items.push_back(*p[0]);
  return Value::None();
}

Result<Value> ListIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "index(value)", 1));
  const std::vector<Value>& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    LS_ASSIGN(const bool equal, Equals(runtime, items[i], *p[0]));
    if (equal) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("the value is not in the list");
}

Result<Value> ListCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "count(value)", 1));
  int64_t count = 0;
  for (const Value& item : self.list().items) {
    LS_ASSIGN(const bool equal, Equals(runtime, item, *p[0]));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

Result<Value> Cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) return InvalidArgument("loop.cycle needs items to cycle through");
  return arguments.positional[self.loop().index0 % arguments.positional.size()];
}

Result<Value> Changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Loop& loop = self.loop();
  bool same = loop.changed_called && loop.last_changed.size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    LS_ASSIGN(same, Equals(runtime, loop.last_changed[i], arguments.positional[i]));
  }
  loop.changed_called = true;
  loop.last_changed = arguments.positional;
  return Value::Bool(!same);
}

constexpr std::array kTextMethods = {
    Builtin{"strip", Strip<Side::kBoth>},
    Builtin{"lstrip", Strip<Side::kLeft>},
    Builtin{"rstrip", Strip<Side::kRight>},
    Builtin{"split", Split<false>},
    Builtin{"rsplit", Split<true>},
    Builtin{"splitlines", SplitLinesOf},
    Builtin{"partition", Partition},
    Builtin{"startswith", CheckAffix<true>},
    Builtin{"endswith", CheckAffix<false>},
    Builtin{"removeprefix", RemoveAffix<true>},
    Builtin{"removesuffix", RemoveAffix<false>},
    Builtin{"upper", MapSelf<Upper>},
    Builtin{"lower", MapSelf<Lower>},
    Builtin{"title", MapSelf<Title>},
    Builtin{"capitalize", MapSelf<Capitalize>},
    Builtin{"replace", ReplaceIn},
    Builtin{"join", JoinItems},
    Builtin{"find", Find<false>},
    Builtin{"rfind", Find<true>},
    Builtin{"index", TextIndex},
    Builtin{"count", TextCount},
    Builtin{"isdigit", CheckCharacters<IsDecimalDigit>},
    Builtin{"isspace", CheckCharacters<IsSpace>},
    Builtin{"format", FormatSelf},
};

constexpr std::array kDictMethods = {
    Builtin{"get", Get},
    Builtin{"items", View<ListKind::kItems>},
    Builtin{"keys", View<ListKind::kKeys>},
    Builtin{"values", View<ListKind::kValues>},
};

constexpr std::array kListMethods = {
    Builtin{"append", Append},
    Builtin{"index", ListIndex},
    Builtin{"count", ListCount},
};

constexpr std::array kLoopMethods = {
    Builtin{"cycle", Cycle},
    Builtin{"changed", Changed},
};

}  // namespace

BuiltinTable TextMethods() { return {kTextMethods.data(), kTextMethods.size()}; }
BuiltinTable DictMethods() { return {kDictMethods.data(), kDictMethods.size()}; }
BuiltinTable ListMethods() { return {kListMethods.data(), kListMethods.size()}; }
BuiltinTable LoopMethods() { return {kLoopMethods.data(), kLoopMethods.size()}; }

}  // namespace longspec::jinja
