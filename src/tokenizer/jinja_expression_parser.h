// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a template being parsed, and the parser of expressions over them. Used by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace longspec::jinja {

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

class ExpressionParser {
 public:
  // Operators, subscripts and filters in a row make a tree of this depth at most.
  static constexpr int kMaxDepth = 200;

  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Result<ExpressionPtr> ParseExpression() { return ParseConditional(); }
  // One expression or, with commas, a tuple; without "a if b else c" where an "if" would mean something else.
  Result<ExpressionPtr> ParseTuple(bool with_conditional = true);
  // The filters of "| a | b(c)", applied to nothing yet.
  Result<std::vector<BuiltinCall>> ParseFilters();
  // The same where the first filter has no bar before it: {% filter a | b %}.
  Result<std::vector<BuiltinCall>> ParseFilterTag();

 private:
  Result<ExpressionPtr> ParseConditional();
  Result<ExpressionPtr> ParseLogical(bool is_and);
  Result<ExpressionPtr> ParseNot();
  Result<ExpressionPtr> ParseCompare();
  Result<ExpressionPtr> ParseMath(int level);
  Result<ExpressionPtr> ParseConcat();
  Result<ExpressionPtr> ParseUnary(bool with_filter);
  Result<ExpressionPtr> ParsePrimary();
  Result<ExpressionPtr> ParseNumber();
  Result<ExpressionPtr> ParseName();
  Result<ExpressionPtr> ParseParentheses();
  Result<ExpressionPtr> ParseList();
  Result<ExpressionPtr> ParseDict();
  Result<ExpressionPtr> ParsePostfix(ExpressionPtr operand);
  Result<ExpressionPtr> ParseFilterExpression(ExpressionPtr operand);
  Result<ExpressionPtr> ParseAttribute(ExpressionPtr object);
  Result<ExpressionPtr> ParseSubscript(ExpressionPtr object);
  Result<ExpressionPtr> ParseSlice(ExpressionPtr object, ExpressionPtr start, int line);
  Result<ExpressionPtr> ParseCall(ExpressionPtr callee);
  Result<ExpressionPtr> ParseTest(ExpressionPtr operand);
  Result<BuiltinCall> ParseFilter();
  Result<std::string> ParseDottedName();
  Result<CallArguments> ParseArguments();
  bool AtTestArgument() const;
  bool TakeComparison(Comparison* comparison);
  // Parsed items up to the closing bracket, which is taken too.
  Result<std::vector<ExpressionPtr>> ParseItems(std::string_view close);

  Result<ExpressionPtr> Make(Expression::Node node, int line, int depth_below) const;

  TokenStream& tokens_;
};

}  // namespace longspec::jinja
