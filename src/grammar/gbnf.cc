// SPDX-License-Identifier: Apache-2.0
#include "grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/print.h"
#include "base/status_macros.h"
#include "base/utf8.h"

namespace longspec {
namespace {

constexpr uint32_t kMostCodePoint = 0x10FFFF;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// A character of a literal or of a class, so that no notation gives it another meaning.
std::string Escaped(uint32_t code_point) {
  const auto c = static_cast<char>(code_point);
  const bool plain =
      code_point < 0x80 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'));
  return plain ? std::string(1, c) : Print("\\U%08x", code_point);
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text) {}

  Result<std::string> Translate() {
    SkipSpace(true);
    while (!AtEnd()) LS_TRY(ReadRule());
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) return Wrong(rule.line, "the rule \"" + name + "\" is not defined");
    }
    const auto root = rules_.find("root");
    if (root == rules_.end())
      return InvalidArgument("grammar: there is no rule \"root\", which every grammar begins with");
    return "root ::= " + NameOf(root->second) + "\n" + out_;
  }

 private:
  struct Rule {
    size_t number;
    int line;  // where it is met first
    bool defined = false;
  };

  static std::string NameOf(const Rule& rule) { return "r" + std::to_string(rule.number); }
  static Status Wrong(int line, const std::string& what) {
    return InvalidArgument("grammar: line " + std::to_string(line) + ": " + what);
  }
  Status Wrong(const std::string& what) const { return Wrong(line_, what); }

  bool AtEnd() const { return at_ == text_.size(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool IsLineEnd() const { return Peek() == '\n' || Peek() == '\r'; }
  void Skip(size_t n = 1) {
    for (; n > 0; --n) {
      if (text_[at_++] == '\n') ++line_;
    }
  }
  bool Take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    Skip(wanted.size());
    return true;
  }

  // Blanks and comments, and line ends too where a rule may go on after them.
  void SkipSpace(bool lines) {
    while (!AtEnd()) {
      if (Peek() == '#') {
        while (!AtEnd() && !IsLineEnd()) Skip();
      } else if (Peek() == ' ' || Peek() == '\t' || (lines && IsLineEnd())) {
        Skip();
      } else {
        return;
      }
    }
  }

  std::string Here() const {
    if (AtEnd()) return "the text ends";
    return IsLineEnd() ? "the line ends" : "there is '" + std::string(text_.substr(at_, 1)) + "'";
  }

  std::string ReadName() {
    const size_t begin = at_;
    while (!AtEnd() && IsNameCharacter(Peek())) Skip();
    return std::string(text_.substr(begin, at_ - begin));
  }

  Rule& RuleNamed(const std::string& name) {
    return rules_.try_emplace(name, Rule{.number = rules_.size(), .line = line_}).first->second;
  }

  Status ReadRule() {
    const std::string name = ReadName();
    if (name.empty()) return Wrong("a rule begins with its name, but " + Here());
    SkipSpace(false);
    if (!Take("::="))
      return Wrong("\"::=\" must follow the name of the rule \"" + name + "\", but " + Here());
    Rule& rule = RuleNamed(name);
    if (std::exchange(rule.defined, true)) return Wrong("the rule \"" + name + "\" is defined twice");
    SkipSpace(true);
    out_ += NameOf(rule) + " ::= ";
    LS_TRY(ReadAlternatives(0));
    out_ += '\n';
    if (!AtEnd() && !IsLineEnd()) return Wrong("a rule ends with its line, but " + Here());
    SkipSpace(true);
    return {};
  }

  Status ReadAlternatives(int nesting) {
    if (nesting > kMostGbnfNesting) {
      return Wrong("groups may lie at most " + std::to_string(kMostGbnfNesting) + " within each other");
    }
    while (true) {
      LS_TRY(ReadSequence(nesting));
      if (!Take("|")) return {};
      out_ += " | ";
      SkipSpace(true);
    }
  }

  // What is not there is the empty text.
  Status ReadSequence(int nesting) {
    bool empty = true;
    while (BeginsElement()) {
      if (!empty) out_ += ' ';
      LS_TRY(ReadElement(nesting));
      LS_TRY(ReadRepetition());
      SkipSpace(nesting > 0);
      empty = false;
    }
    if (empty) out_ += "\"\"";
    return {};
  }

  bool BeginsElement() const {
    const char c = Peek();
    return !AtEnd() &&
           (c == '"' || c == '[' || c == '(' || c == '.' || c == '<' || c == '!' || IsNameCharacter(c));
  }

  Status ReadElement(int nesting) {
    if (Take("\"")) return ReadLiteral();
    if (Take("[")) return ReadClass();
    if (Take(".")) {
      out_ += "[\\U00000001-\\U0010ffff]";
      return {};
    }
    if (Take("(")) {
      out_ += '(';
      SkipSpace(true);
      LS_TRY(ReadAlternatives(nesting + 1));
      if (!Take(")")) return Wrong("a group ends with ')', but " + Here());
      out_ += ')';
      return {};
    }
    if (Peek() == '<' || Peek() == '!') {
      return Unsupported("grammar: line " + std::to_string(line_) +
                         ": tokens (<[7]>, <text>) are not supported; write the text in quotes");
    }
    const std::string name = ReadName();
    out_ += NameOf(RuleNamed(name));
    return {};
  }

  Status ReadLiteral() {
    out_ += '"';
    while (!Take("\"")) {
      if (AtEnd() || IsLineEnd()) return Wrong("a text in quotes ends with '\"', but " + Here());
      LS_ASSIGN(const uint32_t c, ReadCharacter());
      if (c == 0) return Wrong("a text in quotes must not hold the character 0");
      out_ += Escaped(c);
    }
    out_ += '"';
    return {};
  }

  Status ReadClass() {
    out_ += '[';
    if (Take("^")) out_ += '^';
    bool empty = true;
    while (!Take("]")) {
      if (AtEnd() || IsLineEnd()) return Wrong("a class of characters ends with ']', but " + Here());
      LS_ASSIGN(const uint32_t from, ReadCharacter());
      out_ += Escaped(from);
      empty = false;
      if (Peek() != '-' || Peek(1) == ']') continue;
      Skip();
      if (AtEnd() || IsLineEnd()) return Wrong("a class of characters ends with ']', but " + Here());
      LS_ASSIGN(const uint32_t to, ReadCharacter());
      if (to < from) return Wrong("in a class of characters a range must not fall");
      out_ += '-' + Escaped(to);
    }
    if (empty) return Wrong("a class of characters must not be empty");
    out_ += ']';
    return {};
  }

  // *, +, ?, {m}, {m,} or {m,n}, if there is one.
  Status ReadRepetition() {
    SkipBlanksBeforeMark();
    if (!IsMark(Peek())) return {};
    if (Take("{")) {
      LS_ASSIGN(const std::string bounds, ReadBounds());
      out_ += bounds;
    } else {
      out_ += Peek();
      Skip();
    }
    SkipBlanksBeforeMark();
    return IsMark(Peek()) ? Wrong("an element has one repetition; put it into a group for another")
                          : Status();
  }

  static bool IsMark(char c) { return c == '*' || c == '+' || c == '?' || c == '{'; }

  // A mark may stand apart from what it repeats, in the same line.
  void SkipBlanksBeforeMark() {
    size_t ahead = 0;
    while (Peek(ahead) == ' ' || Peek(ahead) == '\t') ++ahead;
    if (IsMark(Peek(ahead))) Skip(ahead);
  }

  Result<std::string> ReadBounds() {
    SkipSpace(false);
    LS_ASSIGN(const int least, ReadCount());
    SkipSpace(false);
    std::string bounds = "{" + std::to_string(least);
    if (Take(",")) {
      SkipSpace(false);
      bounds += ',';
      if (Peek() != '}') {
        LS_ASSIGN(const int most, ReadCount());
        if (most < least) return Wrong("in {m,n} n must not be less than m");
        bounds += std::to_string(most);
        SkipSpace(false);
      }
    }
    if (!Take("}")) return Wrong("a repetition ends with '}', but " + Here());
    return bounds + "}";
  }

  Result<int> ReadCount() {
    int count = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), count);
    if (end == begin || count < 0) return Wrong("a repetition needs a number, but " + Here());
    if (error != std::errc() || count > kMostGbnfRepetitions)
      return Wrong("a repetition may be at most " + std::to_string(kMostGbnfRepetitions));
    Skip(static_cast<size_t>(end - begin));
    return count;
  }

  Result<uint32_t> ReadCharacter() {
    if (!Take("\\")) return ReadUtf8();
    const char c = Peek();
    if (AtEnd()) return Wrong("after '\\' the text ends");
    Skip();
    switch (c) {
      case 'n':
        return uint32_t{'\n'};
      case 'r':
        return uint32_t{'\r'};
      case 't':
        return uint32_t{'\t'};
      case 'x':
        return ReadHex(2);
      case 'u':
        return ReadHex(4);
      case 'U':
        return ReadHex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<uint32_t>(c);
      default:
        return Wrong("'\\" + std::string(1, c) +
                     "' is no character; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH");
    }
  }

  Result<uint32_t> ReadHex(size_t digits) {
    uint32_t value = 0;
    const std::string_view given = text_.substr(at_, digits);
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value, 16);
    if (given.size() < digits || error != std::errc() || end != given.data() + digits)
      return Wrong("a character by its number needs " + std::to_string(digits) + " hexadecimal digits");
    Skip(digits);
    return Checked(value);
  }

  Result<uint32_t> Checked(uint32_t code_point) const {
    if (code_point > kMostCodePoint || (code_point >= 0xD800 && code_point < 0xE000))
      return Wrong("a character must be of Unicode");
    return code_point;
  }

  Result<uint32_t> ReadUtf8() {
    const Utf8CodePoint c = DecodeUtf8(text_.substr(at_));
    if (!c.well_formed) return Wrong("the text is not UTF-8");
    Skip(c.length);
    return Checked(c.value);
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::map<std::string, Rule> rules_;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateGbnf(std::string_view text) { return GbnfReader(text).Translate(); }

}  // namespace longspec
