// SPDX-License-Identifier: Apache-2.0
//
// The parser of expressions. Used by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"
#include "longspec/status.h"

namespace longspec::jinja {

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
