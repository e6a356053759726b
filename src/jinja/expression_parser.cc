// SPDX-License-Identifier: Apache-2.0
#include "jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"

namespace longspec::jinja {
namespace {

int DepthOf(const ExpressionPtr& expression) { return expression == nullptr ? 0 : expression->depth; }

int DepthOf(const std::vector<ExpressionPtr>& expressions) {
  int depth = 0;
  for (const ExpressionPtr& expression : expressions) depth = std::max(depth, DepthOf(expression));
  return depth;
}

int DepthOf(const CallArguments& arguments) {
  int depth = DepthOf(arguments.positional);
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, DepthOf(value));
  return depth;
}

struct MathOperator {
  std::string_view text;
  BinaryOperator op;
  int level;  // the higher, the tighter; "~" stands between 0 and 1
};
constexpr std::array kMathOperators = {
    MathOperator{"+", BinaryOperator::kAdd, 0},          MathOperator{"-", BinaryOperator::kSubtract, 0},
    MathOperator{"*", BinaryOperator::kMultiply, 1},     MathOperator{"/", BinaryOperator::kDivide, 1},
    MathOperator{"//", BinaryOperator::kFloorDivide, 1}, MathOperator{"%", BinaryOperator::kModulo, 1},
    MathOperator{"**", BinaryOperator::kPower, 2},
};

const MathOperator* FindMathOperator(const Token& token, int level) {
  if (token.kind != TokenKind::kOperator) return nullptr;
  for (const MathOperator& candidate : kMathOperators) {
    if (candidate.level == level && candidate.text == token.text) return &candidate;
  }
  return nullptr;
}

}  // namespace

Result<ExpressionPtr> ExpressionParser::Make(Expression::Node node, int line, int depth_below) const {
  if (depth_below >= kMaxDepth) {
    return AtLine(ResourceExhausted("an expression of more than " + std::to_string(kMaxDepth) + " levels"),
                  line);
  }
  return std::make_unique<Expression>(Expression{std::move(node), line, depth_below + 1});
}

Result<ExpressionPtr> ExpressionParser::ParseConditional() {
  const TokenStream::Level level(tokens_);
  if (!level) return tokens_.TooDeep();
  const int line = tokens_.line();
  LS_ASSIGN(ExpressionPtr value, ParseLogical(false));
  while (tokens_.SkipName("if")) {
    LS_ASSIGN(ExpressionPtr condition, ParseLogical(false));
    ExpressionPtr otherwise;
    if (tokens_.SkipName("else")) {
      LS_ASSIGN(otherwise, ParseConditional());
    }
    const int depth = std::max({DepthOf(condition), DepthOf(value), DepthOf(otherwise)});
    ConditionalExpression node{std::move(condition), std::move(value), std::move(otherwise)};
    LS_ASSIGN(value, Make(std::move(node), line, depth));
  }
  return value;
}

// "or" of "and"s.
Result<ExpressionPtr> ExpressionParser::ParseLogical(bool is_and) {
  const int line = tokens_.line();
  LS_ASSIGN(ExpressionPtr left, is_and ? ParseNot() : ParseLogical(true));
  while (tokens_.SkipName(is_and ? "and" : "or")) {
    LS_ASSIGN(ExpressionPtr right, is_and ? ParseNot() : ParseLogical(true));
    const int depth = std::max(DepthOf(left), DepthOf(right));
    LS_ASSIGN(left, Make(LogicalExpression{is_and, std::move(left), std::move(right)}, line, depth));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::ParseNot() {
  const int line = tokens_.line();
  if (!tokens_.SkipName("not")) return ParseCompare();
  const TokenStream::Level level(tokens_);
  if (!level) return tokens_.TooDeep();
  LS_ASSIGN(ExpressionPtr operand, ParseNot());
  const int depth = DepthOf(operand);
  return Make(UnaryExpression{UnaryOperator::kNot, std::move(operand)}, line, depth);
}

bool ExpressionParser::TakeComparison(Comparison* comparison) {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kOperators = {{
      {"==", Comparison::kEqual},
      {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater},
      {">=", Comparison::kGreaterEqual},
  }};
  for (const auto& [text, value] : kOperators) {
    if (!tokens_.SkipOperator(text)) continue;
    *comparison = value;
    return true;
  }
  if (tokens_.SkipName("in")) {
    *comparison = Comparison::kIn;
    return true;
  }
  if (!tokens_.IsName("not") || !tokens_.NextIsName("in")) return false;
  tokens_.Advance();
  tokens_.Advance();
  *comparison = Comparison::kNotIn;
  return true;
}

Result<ExpressionPtr> ExpressionParser::ParseCompare() {
  const int line = tokens_.line();
  LS_ASSIGN(ExpressionPtr first, ParseMath(0));
  int depth = DepthOf(first);
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  for (Comparison comparison{}; TakeComparison(&comparison);) {
    LS_ASSIGN(ExpressionPtr operand, ParseMath(0));
    depth = std::max(depth, DepthOf(operand));
    rest.emplace_back(comparison, std::move(operand));
  }
  if (rest.empty()) return first;
  return Make(CompareExpression{std::move(first), std::move(rest)}, line, depth);
}

Result<ExpressionPtr> ExpressionParser::ParseMath(int level) {
  const auto parse_operand = [&] {
    return level == 0 ? ParseConcat() : level == 1 ? ParseMath(2) : ParseUnary(true);
  };
  const int line = tokens_.line();
  LS_ASSIGN(ExpressionPtr left, parse_operand());
  while (const MathOperator* op = FindMathOperator(tokens_.current(), level)) {
    tokens_.Advance();
    LS_ASSIGN(ExpressionPtr right, parse_operand());
    const int depth = std::max(DepthOf(left), DepthOf(right));
    LS_ASSIGN(left, Make(BinaryExpression{op->op, std::move(left), std::move(right)}, line, depth));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::ParseConcat() {
  const int line = tokens_.line();
  LS_ASSIGN(ExpressionPtr first, ParseMath(1));
  if (!tokens_.IsOperator("~")) return first;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  while (tokens_.SkipOperator("~")) {
    LS_ASSIGN(ExpressionPtr part, ParseMath(1));
    parts.push_back(std::move(part));
  }
  const int depth = DepthOf(parts);
  return Make(ConcatExpression{std::move(parts)}, line, depth);
}

Result<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filter) {
  const TokenStream::Level level(tokens_);
  if (!level) return tokens_.TooDeep();
  const int line = tokens_.line();
  ExpressionPtr node;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const UnaryOperator op = tokens_.IsOperator("-") ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    tokens_.Advance();
    LS_ASSIGN(ExpressionPtr operand, ParseUnary(false));
    const int depth = DepthOf(operand);
    LS_ASSIGN(node, Make(UnaryExpression{op, std::move(operand)}, line, depth));
  } else {
    LS_ASSIGN(node, ParsePrimary());
  }
  LS_ASSIGN(node, ParsePostfix(std::move(node)));
  return with_filter ? ParseFilterExpression(std::move(node)) : std::move(node);
}

Result<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    case TokenKind::kString: {
      std::string text;  // neighbouring literals are one
      for (; tokens_.current().kind == TokenKind::kString; tokens_.Advance()) text += tokens_.current().text;
      return Make(LiteralExpression{Value::Literal(std::move(text))}, line, 0);
    }
    default:
      break;
  }
  if (tokens_.IsOperator("(")) return ParseParentheses();
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  return tokens_.Unexpected("an expression");
}

Result<ExpressionPtr> ExpressionParser::ParseNumber() {
  const Token& token = tokens_.current();
  Value value;
  if (token.kind == TokenKind::kFloat) {
    const std::optional<double> number = ParseFloat(token.text);
    if (!number.has_value()) return tokens_.Error(InQuotes(token.text) + " is not a number");
    value = Value::Float(*number);
  } else {
    const bool leading_zero = token.text.find_first_not_of("0_") != std::string::npos &&
                              token.text.size() > 1 && token.text[0] == '0' && token.text[1] >= '0' &&
                              token.text[1] <= '9';
    std::optional<Value> number = leading_zero ? std::nullopt : ParseWhole(token.text, 0);
    if (!number.has_value()) return tokens_.Error(InQuotes(token.text) + " is not an integer of 64 bits");
    value = *std::move(number);
  }
  const int line = token.line;
  tokens_.Advance();
  return Make(LiteralExpression{std::move(value)}, line, 0);
}

Result<ExpressionPtr> ExpressionParser::ParseName() {
  const int line = tokens_.line();
  LS_ASSIGN(std::string name, tokens_.TakeName());
  if (name == "true" || name == "True") return Make(LiteralExpression{Value::Bool(true)}, line, 0);
  if (name == "false" || name == "False") return Make(LiteralExpression{Value::Bool(false)}, line, 0);
  if (name == "none" || name == "None") return Make(LiteralExpression{Value::None()}, line, 0);
  return Make(NameExpression{std::move(name)}, line, 0);
}

Result<ExpressionPtr> ExpressionParser::ParseParentheses() {
  const int line = tokens_.line();
  tokens_.Advance();
  if (tokens_.SkipOperator(")")) return Make(ListExpression{{}, ListKind::kTuple}, line, 0);
  LS_ASSIGN(ExpressionPtr inner, ParseTuple());
  LS_TRY(tokens_.ExpectOperator(")"));
  return inner;
}

Result<ExpressionPtr> ExpressionParser::ParseTuple(bool with_conditional) {
  const auto at_end = [this] {
    return tokens_.current().kind == TokenKind::kPrintEnd || tokens_.current().kind == TokenKind::kBlockEnd ||
           tokens_.IsOperator(")");
  };
  const int line = tokens_.line();
  LS_ASSIGN(ExpressionPtr first, with_conditional ? ParseConditional() : ParseLogical(false));
  if (!tokens_.IsOperator(",")) return first;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (tokens_.SkipOperator(",") && !at_end()) {
    LS_ASSIGN(ExpressionPtr item, with_conditional ? ParseConditional() : ParseLogical(false));
    items.push_back(std::move(item));
  }
  const int depth = DepthOf(items);
  return Make(ListExpression{std::move(items), ListKind::kTuple}, line, depth);
}

Result<std::vector<ExpressionPtr>> ExpressionParser::ParseItems(std::string_view close) {
  std::vector<ExpressionPtr> items;
  while (!tokens_.SkipOperator(close)) {
    if (!items.empty()) {
      LS_TRY(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator(close)) break;
    }
    LS_ASSIGN(ExpressionPtr item, ParseConditional());
    items.push_back(std::move(item));
  }
  return items;
}

Result<ExpressionPtr> ExpressionParser::ParseList() {
  const int line = tokens_.line();
  tokens_.Advance();
  LS_ASSIGN(std::vector<ExpressionPtr> items, ParseItems("]"));
  const int depth = DepthOf(items);
  return Make(ListExpression{std::move(items), ListKind::kList}, line, depth);
}

Result<ExpressionPtr> ExpressionParser::ParseDict() {
  const int line = tokens_.line();
  tokens_.Advance();
  DictExpression dict;
  int depth = 0;
  while (!tokens_.SkipOperator("}")) {
    if (!dict.entries.empty()) {
      LS_TRY(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator("}")) break;
    }
    LS_ASSIGN(ExpressionPtr key, ParseConditional());
    LS_TRY(tokens_.ExpectOperator(":"));
    LS_ASSIGN(ExpressionPtr value, ParseConditional());
    depth = std::max({depth, DepthOf(key), DepthOf(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  return Make(std::move(dict), line, depth);
}

Result<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr operand) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      LS_ASSIGN(operand, ParseAttribute(std::move(operand)));
    } else if (tokens_.IsOperator("[")) {
      LS_ASSIGN(operand, ParseSubscript(std::move(operand)));
    } else if (tokens_.IsOperator("(")) {
      LS_ASSIGN(operand, ParseCall(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::ParseFilterExpression(ExpressionPtr operand) {
  while (true) {
    const int line = tokens_.line();
    if (tokens_.SkipOperator("|")) {
      LS_ASSIGN(BuiltinCall filter, ParseFilter());
      const int depth = std::max(DepthOf(operand), DepthOf(filter.arguments));
      LS_ASSIGN(operand, Make(FilterExpression{std::move(operand), std::move(filter)}, line, depth));
    } else if (tokens_.SkipName("is")) {
      LS_ASSIGN(operand, ParseTest(std::move(operand)));
    } else if (tokens_.IsOperator("(")) {
      LS_ASSIGN(operand, ParseCall(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.Advance();
  const int depth = DepthOf(object);
  if (tokens_.current().kind == TokenKind::kInteger) {
    LS_ASSIGN(ExpressionPtr key, ParseNumber());
    return Make(ItemExpression{std::move(object), std::move(key)}, line, depth);
  }
  LS_ASSIGN(std::string name, tokens_.TakeName());
  return Make(AttributeExpression{std::move(object), std::move(name)}, line, depth);
}

Result<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.Advance();
  if (tokens_.IsOperator(":")) return ParseSlice(std::move(object), nullptr, line);
  LS_ASSIGN(ExpressionPtr key, ParseConditional());
  if (tokens_.IsOperator(":")) return ParseSlice(std::move(object), std::move(key), line);
  LS_TRY(tokens_.ExpectOperator("]"));
  const int depth = std::max(DepthOf(object), DepthOf(key));
  return Make(ItemExpression{std::move(object), std::move(key)}, line, depth);
}

// From the first colon on.
Result<ExpressionPtr> ExpressionParser::ParseSlice(ExpressionPtr object, ExpressionPtr start, int line) {
  SliceExpression slice{std::move(object), std::move(start), nullptr, nullptr};
  for (ExpressionPtr* bound : {&slice.stop, &slice.step}) {
    if (!tokens_.SkipOperator(":")) break;
    if (tokens_.IsOperator(":") || tokens_.IsOperator("]")) continue;
    LS_ASSIGN(*bound, ParseConditional());
  }
  LS_TRY(tokens_.ExpectOperator("]"));
  const int depth =
      std::max({DepthOf(slice.object), DepthOf(slice.start), DepthOf(slice.stop), DepthOf(slice.step)});
  return Make(std::move(slice), line, depth);
}

Result<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr callee) {
  const int line = tokens_.line();
  LS_ASSIGN(CallArguments arguments, ParseArguments());
  const int depth = std::max(DepthOf(callee), DepthOf(arguments));
  return Make(CallExpression{std::move(callee), std::move(arguments)}, line, depth);
}

Result<CallArguments> ExpressionParser::ParseArguments() {
  LS_TRY(tokens_.ExpectOperator("("));
  CallArguments arguments;
  bool first = true;
  while (!tokens_.SkipOperator(")")) {
    if (!first) {
      LS_TRY(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator(")")) break;
    }
    first = false;
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      return AtLine(Unsupported("arguments unpacked with '" + tokens_.current().text + "' are not offered"),
                    tokens_.line());
    }
    if (tokens_.current().kind == TokenKind::kName && tokens_.NextIsOperator("=")) {
      LS_ASSIGN(std::string name, tokens_.TakeName());
      tokens_.Advance();
      LS_ASSIGN(ExpressionPtr value, ParseConditional());
      arguments.named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!arguments.named.empty()) return tokens_.Error("a positional argument follows a named one");
    LS_ASSIGN(ExpressionPtr value, ParseConditional());
    arguments.positional.push_back(std::move(value));
  }
  return arguments;
}

Result<std::string> ExpressionParser::ParseDottedName() {
  LS_ASSIGN(std::string name, tokens_.TakeName());
  while (tokens_.SkipOperator(".")) {
    LS_ASSIGN(const std::string part, tokens_.TakeName());
    name += "." + part;
  }
  return name;
}

Result<BuiltinCall> ExpressionParser::ParseFilter() {
  const int line = tokens_.line();
  LS_ASSIGN(const std::string name, ParseDottedName());
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) return AtLine(Unsupported("the filter '" + name + "' is not offered"), line);
  BuiltinCall call{filter, {}, line};
  if (tokens_.IsOperator("(")) {
    LS_ASSIGN(call.arguments, ParseArguments());
  }
  return call;
}

Result<std::vector<BuiltinCall>> ExpressionParser::ParseFilters() {
  std::vector<BuiltinCall> filters;
  while (tokens_.SkipOperator("|")) {
    LS_ASSIGN(BuiltinCall filter, ParseFilter());
    filters.push_back(std::move(filter));
  }
  return filters;
}

Result<std::vector<BuiltinCall>> ExpressionParser::ParseFilterTag() {
  LS_ASSIGN(BuiltinCall first, ParseFilter());
  LS_ASSIGN(std::vector<BuiltinCall> filters, ParseFilters());
  filters.insert(filters.begin(), std::move(first));
  return filters;
}

// Whether what follows a test's name is its argument written without parentheses.
bool ExpressionParser::AtTestArgument() const {
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return !tokens_.IsName("else") && !tokens_.IsName("or") && !tokens_.IsName("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return tokens_.IsOperator("[") || tokens_.IsOperator("{");
  }
}

Result<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr operand) {
  const int line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  LS_ASSIGN(const std::string name, ParseDottedName());
  const Builtin* test = FindTest(name);
  if (test == nullptr) return AtLine(Unsupported("the test '" + name + "' is not offered"), line);
  BuiltinCall call{test, {}, line};
  if (tokens_.IsOperator("(")) {
    LS_ASSIGN(call.arguments, ParseArguments());
  } else if (AtTestArgument()) {
    if (tokens_.IsName("is")) return tokens_.Error("tests cannot be chained with 'is'");
    LS_ASSIGN(ExpressionPtr argument, ParsePrimary());
    LS_ASSIGN(argument, ParsePostfix(std::move(argument)));
    call.arguments.positional.push_back(std::move(argument));
  }
  const int depth = std::max(DepthOf(operand), DepthOf(call.arguments));
  return Make(TestExpression{std::move(operand), std::move(call), negated}, line, depth);
}

}  // namespace longspec::jinja
