// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a template. It is split as Jinja does with trim_blocks and lstrip_blocks on, which is how
// chat templates are written: comments and raw blocks are resolved here, and white space around tags is
// already stripped. A parser looks at the current token, takes what it expects, and says what was there
// instead.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longspec/status.h"

namespace longspec::jinja {

enum class TokenKind {
  kText,        // literal output
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,  // text holds the unescaped content
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// The tokens, the last one being kEnd, or the first lexical error with its line.
Result<std::vector<Token>> Tokenize(std::string_view source);

// "chat template, line N: message", the form of all errors of a template.
Status AtLine(const Status& status, int line);

class TokenStream {
 public:
  // Parentheses, blocks and prefix operators inside each other.
  static constexpr int kMaxNesting = 100;

  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  void Advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }

  bool IsName(std::string_view name) const { return Matches(current(), TokenKind::kName, name); }
  bool IsOperator(std::string_view op) const { return Matches(current(), TokenKind::kOperator, op); }
  bool NextIsName(std::string_view name) const { return Matches(next(), TokenKind::kName, name); }
  bool NextIsOperator(std::string_view op) const { return Matches(next(), TokenKind::kOperator, op); }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  Status ExpectOperator(std::string_view op);
  Status ExpectName(std::string_view name);
  Status Expect(TokenKind kind);
  Result<std::string> TakeName();

  Status Unexpected(std::string_view expected) const;
  Status Error(const std::string& message) const { return AtLine(InvalidArgument(message), line()); }

  // One level of recursion; false operator bool means that it is one too many.
  class Level {
   public:
    explicit Level(TokenStream& tokens) : tokens_(tokens) { ++tokens_.nesting_; }
    ~Level() { --tokens_.nesting_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    explicit operator bool() const { return tokens_.nesting_ <= kMaxNesting; }

   private:
    TokenStream& tokens_;
  };
  Status TooDeep() const;

 private:
  static bool Matches(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace longspec::jinja
