// SPDX-License-Identifier: Apache-2.0
//
// A parsed template. Immutable after parsing, so renderings may share it between threads. Its depth is
// bounded by the parser, so recursion over it (and its destruction) is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/ops.h"
#include "jinja/value.h"

namespace longspec::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct LiteralExpression {
  Value value;
};
struct NameExpression {
  std::string name;
};
struct AttributeExpression {
  ExpressionPtr object;
  std::string name;
};
struct ItemExpression {
  ExpressionPtr object, key;
};
struct SliceExpression {
  ExpressionPtr object, start, stop, step;  // null where left out
};
struct CallExpression {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct BuiltinCall {
  const Builtin* builtin;
  CallArguments arguments;
  int line;
};
struct FilterExpression {
  ExpressionPtr operand;
  BuiltinCall filter;
};
struct TestExpression {
  ExpressionPtr operand;
  BuiltinCall test;
  bool negated;
};
enum class UnaryOperator { kNot, kNegate, kPlus };
struct UnaryExpression {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct BinaryExpression {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct LogicalExpression {
  bool is_and;
  ExpressionPtr left, right;
};
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareExpression {  // a < b < c compares neighbours
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct ConcatExpression {
  std::vector<ExpressionPtr> parts;
};
struct ConditionalExpression {
  ExpressionPtr condition, then, otherwise;  // `otherwise` may be null
};
struct ListExpression {
  std::vector<ExpressionPtr> items;
  ListKind kind;
};
struct DictExpression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  using Node = std::variant<LiteralExpression, NameExpression, AttributeExpression, ItemExpression,
                            SliceExpression, CallExpression, FilterExpression, TestExpression,
                            UnaryExpression, BinaryExpression, LogicalExpression, CompareExpression,
                            ConcatExpression, ConditionalExpression, ListExpression, DictExpression>;
  Node node;
  int line;
  int depth;  // levels of expressions below and with this one
};

// What can stand left of an assignment.
struct Target {
  enum class Kind { kName, kNamespaceAttribute, kTuple };
  Kind kind;
  std::string name;
  std::string attribute;
  std::vector<Target> items;
};

struct TextStatement {
  std::string text;
};
struct PrintStatement {
  ExpressionPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPtr iterable, filter;  // `filter` may be null
  Body body, otherwise;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  std::vector<BuiltinCall> filters;
  Body body;
};
struct MacroStatement {
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise;  // the default, or null
  };
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
};
// {% with %} and {% generation %}: a scope, with variables of its own.
struct ScopeStatement {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};
struct FilterBlockStatement {
  std::vector<BuiltinCall> filters;
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  using Node =
      std::variant<TextStatement, PrintStatement, IfStatement, ForStatement, SetStatement, SetBlockStatement,
                   MacroStatement, ScopeStatement, FilterBlockStatement, BreakStatement, ContinueStatement>;
  Node node;
  int line;
};

}  // namespace longspec::jinja
