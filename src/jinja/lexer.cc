// SPDX-License-Identifier: Apache-2.0
#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "base/status_macros.h"
#include "jinja/characters.h"
#include "jinja/value.h"

namespace longspec::jinja {
namespace {

constexpr std::string_view kNames = "\\'\"abfnrtv";
constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";

// \xhh, \uhhhh and \Uhhhhhhhh: exactly `digits` digits.
Status AppendHex(std::string_view literal, size_t digits, size_t* at, std::string* out) {
  const std::string_view hex = literal.substr(*at, digits);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  const bool complete = hex.size() == digits && error == std::errc() && end == hex.data() + hex.size();
  if (!complete || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return InvalidArgument("the string has a \\x, \\u or \\U escape that names no character");
  }
  AppendCodePoint(value, out);
  *at += digits;
  return {};
}

void AppendOctal(std::string_view literal, size_t* at, std::string* out) {
  uint32_t value = 0;
  for (int digits = 0; digits < 3 && *at < literal.size() && literal[*at] >= '0' && literal[*at] <= '7';
       ++digits) {
    value = value * 8 + static_cast<uint32_t>(literal[(*at)++] - '0');
  }
  AppendCodePoint(value, out);
}

// Appends the meaning of the content of one of Python's string literals, without its quotes; unknown escapes
// stay as they are.
Status Unescape(std::string_view literal, std::string* out) {
  for (size_t at = 0; at < literal.size();) {
    const char c = literal[at++];
    if (c != '\\' || at == literal.size()) {
      out->push_back(c);
      continue;
    }
    const char escaped = literal[at++];
    const size_t name = kNames.find(escaped);
    if (name != std::string_view::npos) {
      out->push_back(kMeanings[name]);
    } else if (escaped == 'x' || escaped == 'u' || escaped == 'U') {
      LS_TRY(AppendHex(literal, escaped == 'x' ? 2 : escaped == 'u' ? 4 : 8, &at, out));
    } else if (escaped >= '0' && escaped <= '7') {
      --at;
      AppendOctal(literal, &at, out);
    } else if (escaped == 'N') {
      return Unsupported("named characters (\\N{...}) are not offered in strings");
    } else if (escaped != '\n') {  // a backslash before a newline joins the lines
      out->push_back('\\');
      out->push_back(escaped);
    }
  }
  return {};
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameCharacter(char c) { return IsNameStart(c) || IsDigit(c); }

// \r\n and \r become \n, and the newline that ends a file is no output.
std::string NormalizeSource(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeSource(source)), rest_(source_) {}

  Result<std::vector<Token>> Run() {
    while (!rest_.empty()) LS_TRY(LexRoot());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status LexRoot();
  Status LexComment();
  Status LexRaw(size_t begin_size);
  Status LexTag(TokenKind end);
  Status LexTagToken();
  Status LexString();
  Status LexNumber();
  Status LexOperator();

  // The size of "raw [-]%}" after a block's beginning, or 0 if the block is another.
  size_t MatchRawBegin(size_t at) const;
  size_t MatchEndRaw(size_t at, char* sign, size_t* close) const;
  bool TakeEnd(TokenKind end);
  void TakeAfterTag(char sign);
  void AddText(std::string_view text, char sign, bool is_print);
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void Skip(size_t size);
  size_t SkipSpaces(size_t at) const;
  Status Error(const std::string& message) const { return AtLine(InvalidArgument(message), line_); }
  bool StartsWith(std::string_view prefix) const { return rest_.substr(0, prefix.size()) == prefix; }
  bool WordAt(size_t at, std::string_view word) const { return rest_.substr(at, word.size()) == word; }

  const std::string source_;
  std::string_view rest_;
  int line_ = 1;
  bool line_starting_ = true;  // nothing but a newline stands before rest_
  char previous_ = '\n';
  std::string open_brackets_;  // the closing ones that are awaited
  std::vector<Token> tokens_;
};

void Lexer::Skip(size_t size) {
  const std::string_view skipped = rest_.substr(0, size);
  line_ += static_cast<int>(std::count(skipped.begin(), skipped.end(), '\n'));
  if (!skipped.empty()) previous_ = skipped.back();
  rest_.remove_prefix(skipped.size());
}

size_t Lexer::SkipSpaces(size_t at) const {
  while (at < rest_.size()) {
    const CodePoint c = DecodeAt(rest_, at);
    if (!IsSpace(c.value)) break;
    at += c.size;
  }
  return at;
}

// Adds the text before a tag that begins with `sign`: '-' strips the white space at its end, and what only
// indents a block or comment is no output.
void Lexer::AddText(std::string_view text, char sign, bool is_print) {
  if (sign == '-') {
    text = StripSpace(text, Side::kRight);
  } else if (sign != '+' && !is_print) {
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    const bool at_line_start = line_start > 0 || line_starting_;
    if (at_line_start && StripSpace(text.substr(line_start)).empty()) text = text.substr(0, line_start);
  }
  if (!text.empty()) Add(TokenKind::kText, std::string(text));
}

// After the end of a block or comment: '-' strips the white space that follows, and otherwise one newline
// goes unless '+' keeps it.
void Lexer::TakeAfterTag(char sign) {
  if (sign == '-') {
    Skip(SkipSpaces(0));
  } else if (sign != '+' && StartsWith("\n")) {
    Skip(1);
  }
  line_starting_ = previous_ == '\n';
}

Status Lexer::LexRoot() {
  size_t at = 0;
  while ((at = rest_.find('{', at)) != std::string_view::npos) {
    const char next = at + 1 < rest_.size() ? rest_[at + 1] : ' ';
    if (next == '{' || next == '%' || next == '#') break;
    ++at;
  }
  if (at == std::string_view::npos) {
    Add(TokenKind::kText, std::string(rest_));
    Skip(rest_.size());
    return {};
  }
  const char kind = rest_[at + 1];
  char sign = at + 2 < rest_.size() ? rest_[at + 2] : ' ';
  if (sign != '-' && sign != '+') sign = ' ';
  const std::string_view text = rest_.substr(0, at);
  AddText(text, sign, kind == '{');
  Skip(at + 2 + (sign == ' ' ? 0 : 1));
  if (kind == '#') return LexComment();
  if (kind == '{') {
    Add(TokenKind::kPrintBegin, "");
    return LexTag(TokenKind::kPrintEnd);
  }
  if (const size_t raw = MatchRawBegin(0); raw > 0) return LexRaw(raw);
  Add(TokenKind::kBlockBegin, "");
  return LexTag(TokenKind::kBlockEnd);
}

Status Lexer::LexComment() {
  const size_t end = rest_.find("#}");
  if (end == std::string_view::npos) return Error("the comment is not closed with '#}'");
  const char sign = end > 0 ? rest_[end - 1] : ' ';
  Skip(end + 2);
  TakeAfterTag(sign);
  return {};
}

size_t Lexer::MatchRawBegin(size_t at) const {
  at = SkipSpaces(at);
  if (!WordAt(at, "raw")) return 0;
  at = SkipSpaces(at + 3);
  if (WordAt(at, "-%}")) return SkipSpaces(at + 3);
  return WordAt(at, "%}") ? at + 2 : 0;
}

// If an endraw tag stands at `at`, its size up to and with "%}", and the signs at its two ends.
size_t Lexer::MatchEndRaw(size_t at, char* sign, size_t* close) const {
  size_t end = at + 2;
  *sign = end < rest_.size() ? rest_[end] : ' ';
  if (*sign == '-' || *sign == '+') ++end;
  end = SkipSpaces(end);
  if (!WordAt(end, "endraw")) return 0;
  end = SkipSpaces(end + 6);
  *close = end;
  if (WordAt(end, "-%}") || WordAt(end, "+%}")) return end + 3 - at;
  return WordAt(end, "%}") ? end + 2 - at : 0;
}

Status Lexer::LexRaw(size_t begin_size) {
  Skip(begin_size);
  line_starting_ = previous_ == '\n';
  for (size_t at = 0; (at = rest_.find("{%", at)) != std::string_view::npos; ++at) {
    char sign = ' ';
    size_t close = 0;
    const size_t size = MatchEndRaw(at, &sign, &close);
    if (size == 0) continue;
    const char close_sign = rest_[close];
    AddText(rest_.substr(0, at), sign, false);
    Skip(at + size);
    TakeAfterTag(close_sign);
    return {};
  }
  return Error("the raw block is not closed with '{% endraw %}'");
}

// Takes "%}" or "}}" if it stands here, with what it strips.
bool Lexer::TakeEnd(TokenKind end) {
  if (!open_brackets_.empty()) return false;
  const std::string_view mark = end == TokenKind::kBlockEnd ? "%}" : "}}";
  const char sign = rest_[0];
  const bool signed_end = sign == '-' || (sign == '+' && end == TokenKind::kBlockEnd);
  if (!WordAt(signed_end ? 1 : 0, mark)) return false;
  Add(end, "");
  Skip(mark.size() + (signed_end ? 1 : 0));
  if (end == TokenKind::kBlockEnd || sign == '-') {
    TakeAfterTag(sign);
  } else {
    line_starting_ = false;
  }
  return true;
}

Status Lexer::LexTag(TokenKind end) {
  const int begin_line = line_;
  while (true) {
    Skip(SkipSpaces(0));
    if (rest_.empty()) break;
    if (TakeEnd(end)) return {};
    LS_TRY(LexTagToken());
  }
  const std::string mark = end == TokenKind::kBlockEnd ? "'%}'" : "'}}'";
  return AtLine(InvalidArgument("the tag is not closed with " + mark), begin_line);
}

Status Lexer::LexTagToken() {
  const char c = rest_[0];
  if (IsDigit(c)) return LexNumber();
  if (c == '\'' || c == '"') return LexString();
  if (!IsNameStart(c)) return LexOperator();
  size_t size = 1;
  while (size < rest_.size() && IsNameCharacter(rest_[size])) ++size;
  Add(TokenKind::kName, std::string(rest_.substr(0, size)));
  Skip(size);
  return {};
}

Status Lexer::LexString() {
  const char quote = rest_[0];
  size_t end = 1;
  while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
  if (end >= rest_.size()) return Error("the string is not closed");
  std::string text;
  const Status status = Unescape(rest_.substr(1, end - 1), &text);
  if (!status.ok()) return AtLine(status, line_);
  Add(TokenKind::kString, std::move(text));
  Skip(end + 1);
  return {};
}

// Integers with Python's prefixes, and floats, both with underscores between digits.
Status Lexer::LexNumber() {
  const auto digits = [this](size_t at) {
    while (at < rest_.size() &&
           (IsDigit(rest_[at]) || (rest_[at] == '_' && at + 1 < rest_.size() && IsDigit(rest_[at + 1]))))
      ++at;
    return at;
  };
  const auto digit_at = [this](size_t at) { return at < rest_.size() && IsDigit(rest_[at]); };
  size_t end = digits(0);
  bool is_float = false;
  const char mark =
      end == 1 && rest_[0] == '0' && end < rest_.size() ? static_cast<char>(rest_[1] | 0x20) : ' ';
  if (mark == 'x' || mark == 'o' || mark == 'b') {
    end = 2;
    while (end < rest_.size() && (std::isxdigit(static_cast<unsigned char>(rest_[end])) || rest_[end] == '_'))
      ++end;
  } else if (previous_ != '.') {  // in x.0.1 no float stands
    if (end < rest_.size() && rest_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      end = digits(end + 1);
    }
    if (end < rest_.size() && (rest_[end] | 0x20) == 'e') {
      const size_t exponent =
          end + 1 < rest_.size() && (rest_[end + 1] == '-' || rest_[end + 1] == '+') ? end + 2 : end + 1;
      if (digit_at(exponent)) {
        is_float = true;
        end = digits(exponent);
      }
    }
  }
  Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::string(rest_.substr(0, end)));
  Skip(end);
  return {};
}

Status Lexer::LexOperator() {
  constexpr std::array<std::string_view, 6> kDouble = {"//", "**", "==", "!=", ">=", "<="};
  constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
  size_t size = 1;
  if (std::find(kDouble.begin(), kDouble.end(), rest_.substr(0, 2)) != kDouble.end()) {
    size = 2;
  } else if (kSingle.find(rest_[0]) == std::string_view::npos) {
    return Error("unexpected character " + std::string(rest_.substr(0, DecodeAt(rest_, 0).size)));
  }
  const char c = rest_[0];
  if (c == '(' || c == '[' || c == '{') {
    open_brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
  } else if (c == ')' || c == ']' || c == '}') {
    if (open_brackets_.empty()) return Error("unexpected '" + std::string(1, c) + "'");
    if (open_brackets_.back() != c) {
      return Error("unexpected '" + std::string(1, c) + "', expected '" + open_brackets_.back() + "'");
    }
    open_brackets_.pop_back();
  }
  Add(TokenKind::kOperator, std::string(rest_.substr(0, size)));
  Skip(size);
  return {};
}

}  // namespace

Status AtLine(const Status& status, int line) {
  return {status.code(), "chat template, line " + std::to_string(line) + ": " + status.message()};
}

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "template text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      break;
  }
  return InQuotes(token.text);
}

}  // namespace

bool TokenStream::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Advance();
  return true;
}

bool TokenStream::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Advance();
  return true;
}

Status TokenStream::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? Status() : Unexpected(InQuotes(op));
}

Status TokenStream::ExpectName(std::string_view name) {
  return SkipName(name) ? Status() : Unexpected(InQuotes(name));
}

Status TokenStream::Expect(TokenKind kind) {
  if (current().kind != kind) return Unexpected(Describe({kind, "", 0}));
  Advance();
  return {};
}

Result<std::string> TokenStream::TakeName() {
  if (current().kind != TokenKind::kName) return Unexpected("a name");
  std::string name = current().text;
  Advance();
  return name;
}

Status TokenStream::Unexpected(std::string_view expected) const {
  return Error("expected " + std::string(expected) + ", got " + Describe(current()));
}

Status TokenStream::TooDeep() const {
  return AtLine(ResourceExhausted("more than " + std::to_string(kMaxNesting) + " levels inside each other"),
                line());
}

}  // namespace longspec::jinja
