// SPDX-License-Identifier: Apache-2.0
#include "pattern/regex.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "base/utf8.h"

namespace longspec {
namespace {

using Kind = Regex::Kind;

// A class of characters: those that every dialect counts among it, and those that some dialect does.
struct Class {
  CodePoints sure, maybe;

  static Class Of(CodePoints set) { return {set, set}; }
  static Class Of(uint32_t code_point) { return Of(CodePoints({{code_point, code_point}})); }
  Class Or(const Class& other) const { return {sure.Union(other.sure), maybe.Union(other.maybe)}; }
  Class Not() const { return {maybe.Complement(), sure.Complement()}; }
};

// Beyond ASCII, what is no letter, mark or digit in any version of Unicode.
const CodePoints& SurelyNoWord() {
  static const CodePoints kSet({{0xA0, 0xA9},     {0xAB, 0xB1},     {0xB4, 0xB4},     {0xB6, 0xB8},
                                {0xBB, 0xBB},     {0xBF, 0xBF},     {0xD7, 0xD7},     {0xF7, 0xF7},
                                {0x2010, 0x2027}, {0x2030, 0x203E}, {0x2041, 0x2053}, {0x2055, 0x205E},
                                {0x20A0, 0x20BF}, {0x2190, 0x23FF}, {0x2500, 0x2775}, {0x2794, 0x27FF},
                                {0x2900, 0x2BFF}, {0x3000, 0x3003}, {0x3008, 0x3020}, {0x1F300, 0x1FAFF}});
  return kSet;
}

// Where decimal digits of other scripts begin; they come in tens.
constexpr auto kOtherDigits = std::to_array<uint32_t>(
    {0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
     0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90,
     0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10});

Class Digits() {
  std::vector<CodePointRange> maybe = {{'0', '9'}, {0x10000, 0x1EFFF}, {0x1FBF0, 0x1FBF9}};
  for (const uint32_t first : kOtherDigits) maybe.push_back({first, first + 9});
  return {CodePoints({{'0', '9'}}), CodePoints(std::move(maybe))};
}

Class WordCharacters() {
  const CodePoints ascii({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  const CodePoints beyond({{0x80, kMostCodePoint}});
  return {ascii, ascii.Union(beyond.Intersection(SurelyNoWord().Complement()))};
}

Class WhiteSpace() {
  const CodePoints sure({{0x09, 0x0D},
                         {' ', ' '},
                         {0xA0, 0xA0},
                         {0x1680, 0x1680},
                         {0x2000, 0x200A},
                         {0x2028, 0x2029},
                         {0x202F, 0x202F},
                         {0x205F, 0x205F},
                         {0x3000, 0x3000}});
  return {sure, sure.Union(CodePoints({{0x1C, 0x1F}, {0x85, 0x85}, {0x180E, 0x180E}, {0xFEFF, 0xFEFF}}))};
}

Class Dot() { return Class::Of(CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})).Not(); }

std::optional<Class> Shorthand(char name) {
  switch (name) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Not();
    case 'w':
      return WordCharacters();
    case 'W':
      return WordCharacters().Not();
    case 's':
      return WhiteSpace();
    case 'S':
      return WhiteSpace().Not();
    default:
      return std::nullopt;
  }
}

CodePoints WithBothCases(const CodePoints& set) {
  constexpr uint32_t kApart = 'a' - 'A';
  std::vector<CodePointRange> ranges = set.ranges();
  const CodePoints upper = set.Intersection(CodePoints({{'A', 'Z'}}));
  const CodePoints lower = set.Intersection(CodePoints({{'a', 'z'}}));
  for (const CodePointRange& range : upper.ranges())
    ranges.push_back({range.first + kApart, range.last + kApart});
  for (const CodePointRange& range : lower.ranges())
    ranges.push_back({range.first - kApart, range.last - kApart});
  return CodePoints(std::move(ranges));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Regex> Run() {
    if (TakeText("(?i)")) any_case_ = true;
    LS_ASSIGN(Regex whole, Choice(0));
    if (at_ < text_.size()) return Wrong("has a ) without a (");  // what else would a choice stop at?
    return whole;
  }

 private:
  Status Wrong(const std::string& what) const {
    return InvalidArgument("the pattern " + what + " at byte " + std::to_string(at_));
  }
  Status CannotKeep(const std::string& what) const {
    return Unsupported(what + " at byte " + std::to_string(at_) + " of the pattern is not supported");
  }

  bool AtEnd() const { return at_ == text_.size(); }
  char Next() const { return AtEnd() ? '\0' : text_[at_]; }
  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeText(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }

  Result<Regex> Choice(int depth) {
    Regex choice{.kind = Kind::kChoice};
    do {
      LS_ASSIGN(Regex sequence, Sequence(depth));
      choice.parts.push_back(std::move(sequence));
    } while (Take('|'));
    return choice.parts.size() == 1 ? std::move(choice.parts.front()) : std::move(choice);
  }

  Result<Regex> Sequence(int depth) {
    Regex sequence;
    while (!AtEnd() && Next() != '|' && Next() != ')') {
      LS_ASSIGN(Regex term, Term(depth));
      sequence.parts.push_back(std::move(term));
    }
    return sequence.parts.size() == 1 ? std::move(sequence.parts.front()) : std::move(sequence);
  }

  Result<Regex> Term(int depth) {
    if (Next() == '*' || Next() == '+' || Next() == '?' || Bounds()) return Wrong("has nothing to repeat");
    if (Take('^')) return Anchor(Kind::kBegin);
    if (Take('$')) return Anchor(Kind::kEnd);
    LS_ASSIGN(Regex atom, Atom(depth));
    return Quantified(std::move(atom));
  }

  Result<Regex> Anchor(Kind kind) {
    if (Next() == '*' || Next() == '+' || Next() == '?' || Bounds()) return Wrong("repeats an anchor");
    return Regex{.kind = kind};
  }

  Result<Regex> Atom(int depth) {
    if (Take('(')) return Group(depth);
    Class one;
    if (Take('[')) {
      LS_ASSIGN(one, Bracket());
    } else if (Take('.')) {
      one = Dot();
    } else if (Take('\\')) {
      LS_ASSIGN(one, Escape(/*in_class=*/false));
    } else {
      one = Class::Of(Character());
    }
    return Regex::Set(any_case_ ? WithBothCases(one.sure) : std::move(one.sure));
  }

  Result<Regex> Group(int depth) {
    if (depth == kMostRegexNesting)
      return Unsupported("a pattern with more than " + std::to_string(kMostRegexNesting) +
                         " groups within each other is not supported");
    const size_t opened = at_ - 1;
    if (TakeText("?=") || TakeText("?!")) return CannotKeep("lookahead");
    if (TakeText("?<=") || TakeText("?<!")) return CannotKeep("lookbehind");
    if (TakeText("?<") || TakeText("?P<")) {
      const size_t end = text_.find('>', at_);
      if (end == std::string_view::npos) return Wrong("has a group whose name does not end");
      at_ = end + 1;
    } else if (Next() == '?' && !TakeText("?:")) {
      return CannotKeep("a group with " + std::string(text_.substr(at_, 2)));
    }
    LS_ASSIGN(Regex inner, Choice(depth + 1));
    if (!Take(')')) {
      at_ = opened;
      return Wrong("has no ) for the (");
    }
    return inner;
  }

  // {n}, {n,} and {n,m}; any other brace is a character.
  std::optional<std::pair<int64_t, int64_t>> Bounds(size_t* end = nullptr) const {
    if (Next() != '{') return std::nullopt;
    size_t at = at_ + 1;
    const auto number = [&]() -> std::optional<int64_t> {
      if (at == text_.size() || !IsDigit(text_[at])) return std::nullopt;
      int64_t n = 0;
      for (; at < text_.size() && IsDigit(text_[at]); ++at)
        n = std::min(n * 10 + (text_[at] - '0'), kMostRegexCount + 1);
      return n;
    };
    const auto least = number();
    if (!least) return std::nullopt;
    int64_t most = *least;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      most = number().value_or(Regex::kAnyNumber);
    }
    if (at == text_.size() || text_[at] != '}') return std::nullopt;
    if (end != nullptr) *end = at + 1;
    return std::pair(*least, most);
  }

  Result<Regex> Quantified(Regex atom) {
    int64_t least = 0, most = Regex::kAnyNumber;
    if (size_t end = 0; const auto bounds = Bounds(&end)) {
      std::tie(least, most) = *bounds;
      if (most != Regex::kAnyNumber && most < least)
        return Wrong("has a repetition whose bounds are reversed");
      if (least > kMostRegexCount) return CannotKeep("a repetition of " + std::to_string(least) + " or more");
      if (most > kMostRegexCount) most = Regex::kAnyNumber;
      at_ = end;
    } else if (Take('+')) {
      least = 1;
    } else if (Take('?')) {
      most = 1;
    } else if (!Take('*')) {
      if (text_.substr(at_).starts_with("{,")) return CannotKeep("a repetition without its least number");
      return atom;
    }
    Take('?');  // as few as possible: the same texts
    if (Next() == '+') return CannotKeep("a repetition that gives nothing back");
    return Regex::Repeat(std::move(atom), least, most);
  }

  // Within [ and ].
  Result<Class> Bracket() {
    const size_t opened = at_ - 1;
    const bool negated = Take('^');
    if (Next() == ']') return CannotKeep("a class that begins with ]");
    Class all;
    while (!Take(']')) {
      if (AtEnd()) {
        at_ = opened;
        return Wrong("has no ] for the [");
      }
      LS_ASSIGN(const Class part, ClassPart());
      all = all.Or(part);
    }
    if (any_case_) all = {WithBothCases(all.sure), WithBothCases(all.maybe)};
    return negated ? all.Not() : all;
  }

  // A character, a range of them or a class.
  Result<Class> ClassPart() {
    LS_ASSIGN(const Class first, ClassAtom());
    const auto single = Single(first);
    if (!single || !text_.substr(at_).starts_with("-") || text_.substr(at_).starts_with("-]")) return first;
    const size_t dash = at_++;
    if (AtEnd()) return first;
    LS_ASSIGN(const Class second, ClassAtom());
    const auto last = Single(second);
    if (!last) return first.Or(Class::Of('-')).Or(second);
    if (*last < *single) {
      at_ = dash;
      return Wrong("has a range whose ends are reversed");
    }
    return Class::Of(CodePoints({{*single, *last}}));
  }

  Result<Class> ClassAtom() {
    if (Take('\\')) return Escape(/*in_class=*/true);
    return Class::Of(Character());
  }

  static std::optional<uint32_t> Single(const Class& one) {
    const auto& ranges = one.maybe.ranges();
    if (ranges.size() != 1 || ranges[0].first != ranges[0].last) return std::nullopt;
    return ranges[0].first;
  }

  // After a backslash.
  Result<Class> Escape(bool in_class) {
    if (AtEnd()) return Wrong("ends with a backslash");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) >= 0x80) return Class::Of(Character());
    ++at_;
    if (auto shorthand = Shorthand(c)) return *std::move(shorthand);
    if (in_class && c == 'b') return Class::Of('\b');
    constexpr std::string_view kNames = "nrtvf", kControls = "\n\r\t\v\f";
    if (const size_t i = kNames.find(c); i != std::string_view::npos)
      return Class::Of(static_cast<uint32_t>(kControls[i]));
    if (c == '0' && !IsDigit(Next())) return Class::Of(0U);
    if (IsDigit(c) || c == 'k') return CannotKeep("a reference to what a group matched");
    if (c == 'x') return HexEscape(2);
    if (c == 'u') return Take('{') ? BracedEscape() : HexEscape(4);
    if (c == 'c' && IsLetter(Next())) return Class::Of(static_cast<uint32_t>(text_[at_++]) & 0x1FU);
    if (IsLetter(c)) return CannotKeep("\\" + std::string(1, c));
    return Class::Of(static_cast<uint32_t>(c));
  }

  Result<uint32_t> Hex(size_t n_digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < n_digits; ++i) {
      const int digit = HexDigit(Next());
      if (digit < 0) return Wrong("has an escape without its digits");
      value = value << 4 | static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }
  static int HexDigit(char c) {
    if (IsDigit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }

  // Two halves of a pair are one character; a half alone is none.
  Result<Class> HexEscape(size_t n_digits) {
    LS_ASSIGN(const uint32_t value, Hex(n_digits));
    if (value < kFirstSurrogate || value > kLastSurrogate) return Class::Of(value);
    constexpr uint32_t kFirstLow = 0xDC00;
    constexpr const char* kHalf = "half a pair of surrogates";
    if (value >= kFirstLow || !TakeText("\\u")) return CannotKeep(kHalf);
    LS_ASSIGN(const uint32_t low, Hex(n_digits));
    if (low < kFirstLow || low > kLastSurrogate) return CannotKeep(kHalf);
    return Class::Of(0x10000 + ((value - kFirstSurrogate) << 10) + (low - kFirstLow));
  }

  Result<Class> BracedEscape() {
    uint32_t value = 0;
    if (Next() == '}') return Wrong("has an escape without its digits");
    while (!Take('}')) {
      LS_ASSIGN(const uint32_t digit, Hex(1));
      value = value << 4 | digit;
      if (value > kMostCodePoint) return Wrong("has an escape beyond Unicode");
    }
    if (value >= kFirstSurrogate && value <= kLastSurrogate) return CannotKeep("half a pair of surrogates");
    return Class::Of(value);
  }

  // REQUIRES: !AtEnd()
  uint32_t Character() {
    const Utf8CodePoint c = DecodeUtf8(text_.substr(at_));
    at_ += c.length;
    return c.value;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool any_case_ = false;
};

bool HasAnchors(const Regex& regex) {
  return regex.kind == Kind::kBegin || regex.kind == Kind::kEnd ||
         std::ranges::any_of(regex.parts, HasAnchors);
}

Regex AnyText() { return Regex::Repeat(Regex::Set(CodePoints::All()), 0, Regex::kAnyNumber); }

// One of a pattern's alternatives, some of which are anchored. `goes_on`: at sides without an anchor.
Result<Regex> WholeAlternative(const Regex& given, bool goes_on) {
  std::vector<Regex> parts = given.kind == Kind::kSequence ? given.parts : std::vector<Regex>{given};
  const auto is = [](Kind kind) { return [kind](const Regex& part) { return part.kind == kind; }; };
  const auto begin = std::ranges::find_if_not(parts, is(Kind::kBegin));
  const bool begins = begin != parts.begin();
  parts.erase(parts.begin(), begin);
  const auto end = std::find_if_not(parts.rbegin(), parts.rend(), is(Kind::kEnd)).base();
  const bool ends = end != parts.end();
  parts.erase(end, parts.end());
  if (std::ranges::any_of(parts, HasAnchors))
    return Unsupported(
        "an anchor within the pattern, where more could stand before ^ or after $, is not supported");
  if (goes_on && !begins) parts.insert(parts.begin(), AnyText());
  if (goes_on && !ends) parts.push_back(AnyText());
  return Regex::Sequence(std::move(parts));
}

Status AddAlternatives(const Regex& given, bool goes_on, std::vector<Regex>& all) {
  if (given.kind != Kind::kChoice) {
    LS_ASSIGN(Regex whole, WholeAlternative(given, goes_on));
    all.push_back(std::move(whole));
    return {};
  }
  for (const Regex& part : given.parts) LS_TRY(AddAlternatives(part, goes_on, all));
  return {};
}

Result<Regex> WithoutAnchors(const Regex& pattern, bool goes_on) {
  if (!HasAnchors(pattern)) return pattern;
  Regex choice{.kind = Kind::kChoice};
  LS_TRY(AddAlternatives(pattern, goes_on, choice.parts));
  return choice.parts.size() == 1 ? std::move(choice.parts.front()) : std::move(choice);
}

}  // namespace

Regex Regex::Repeat(Regex part, int64_t least, int64_t most) {
  Regex repeat{.kind = Kind::kRepeat, .least = least, .most = most};
  repeat.parts.push_back(std::move(part));
  return repeat;
}

Result<Regex> ParseRegex(std::string_view text) { return Parser(text).Run(); }

Result<Regex> WholeText(const Regex& pattern) { return WithoutAnchors(pattern, /*goes_on=*/true); }

Result<Regex> FullMatch(const Regex& pattern) { return WithoutAnchors(pattern, /*goes_on=*/false); }

}  // namespace longspec
