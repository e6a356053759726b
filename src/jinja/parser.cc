// SPDX-License-Identifier: Apache-2.0
#include "jinja/parser.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "jinja/expression_parser.h"
#include "jinja/lexer.h"

namespace longspec::jinja {
namespace {

using Names = std::vector<std::string_view>;

bool IsReserved(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Result<Body> Run() { return ParseBody({}); }

 private:
  // Statements up to a tag of one of these names; that tag is then the current one.
  Result<Body> ParseBody(const Names& ends);
  // The end of the current tag, a body, and the tag that ends it, which is taken entirely.
  Result<Body> ParseBlock(std::string_view end);
  Result<Body> ParseBlockUntil(const Names& ends);
  Result<Statement> ParseStatement();
  Result<Statement::Node> ParseTag(const std::string& tag);
  Result<Statement::Node> ParseIf();
  Result<Statement::Node> ParseFor();
  Result<Statement::Node> ParseSet();
  Result<Statement::Node> ParseMacro();
  Result<Statement::Node> ParseWith();
  Result<Statement::Node> ParseGeneration();
  Result<Statement::Node> ParseFilterBlock();
  Result<Statement::Node> ParseLoopControl(const std::string& tag);
  Result<Target> ParseTarget(bool with_namespace);
  Result<Target> ParseTargetTuple(bool with_namespace);
  Result<std::vector<MacroStatement::Parameter>> ParseParameters();

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // that "break" and "continue" could mean
};

Result<Body> Parser::ParseBody(const Names& ends) {
  const TokenStream::Level level(tokens_);
  if (!level) return tokens_.TooDeep();
  Body body;
  while (true) {
    const Token& token = tokens_.current();
    const int line = token.line;
    switch (token.kind) {
      case TokenKind::kText:
        body.push_back({TextStatement{token.text}, line});
        tokens_.Advance();
        break;
      case TokenKind::kPrintBegin: {
        tokens_.Advance();
        LS_ASSIGN(ExpressionPtr value, expressions_.ParseTuple());
        LS_TRY(tokens_.Expect(TokenKind::kPrintEnd));
        body.push_back({PrintStatement{std::move(value)}, line});
        break;
      }
      case TokenKind::kBlockBegin: {
        tokens_.Advance();
        const bool ended =
            std::any_of(ends.begin(), ends.end(), [&](auto end) { return tokens_.IsName(end); });
        if (ended) return body;
        LS_ASSIGN(Statement statement, ParseStatement());
        LS_TRY(tokens_.Expect(TokenKind::kBlockEnd));
        body.push_back(std::move(statement));
        break;
      }
      default:
        if (ends.empty()) return body;
        return tokens_.Unexpected("'{% " + std::string(ends.back()) + " %}'");
    }
  }
}

Result<Body> Parser::ParseBlockUntil(const Names& ends) {
  LS_TRY(tokens_.Expect(TokenKind::kBlockEnd));
  return ParseBody(ends);
}

Result<Body> Parser::ParseBlock(std::string_view end) {
  LS_ASSIGN(Body body, ParseBlockUntil({end}));
  LS_TRY(tokens_.ExpectName(end));
  return body;
}

Result<Statement> Parser::ParseStatement() {
  const int line = tokens_.line();
  LS_ASSIGN(const std::string tag, tokens_.TakeName());
  LS_ASSIGN(Statement::Node node, ParseTag(tag));
  return Statement{std::move(node), line};
}

Result<Statement::Node> Parser::ParseTag(const std::string& tag) {
  const int line = tokens_.line();
  if (tag == "if") return ParseIf();
  if (tag == "for") return ParseFor();
  if (tag == "set") return ParseSet();
  if (tag == "macro") return ParseMacro();
  if (tag == "with") return ParseWith();
  if (tag == "generation") return ParseGeneration();
  if (tag == "filter") return ParseFilterBlock();
  if (tag == "break" || tag == "continue") return ParseLoopControl(tag);
  if (tag.substr(0, 3) == "end" || tag == "else" || tag == "elif") {
    return tokens_.Error("'{% " + tag + " %}' stands where it ends nothing");
  }
  return AtLine(Unsupported("the tag '" + tag + "' is not offered"), line);
}

Result<Statement::Node> Parser::ParseIf() {
  IfStatement statement;
  do {
    LS_ASSIGN(ExpressionPtr condition, expressions_.ParseTuple(false));
    LS_ASSIGN(Body body, ParseBlockUntil({"elif", "else", "endif"}));
    statement.branches.emplace_back(std::move(condition), std::move(body));
  } while (tokens_.SkipName("elif"));
  if (tokens_.SkipName("else")) {
    LS_ASSIGN(statement.otherwise, ParseBlock("endif"));
  } else {
    LS_TRY(tokens_.ExpectName("endif"));
  }
  return Statement::Node(std::move(statement));
}

Result<Statement::Node> Parser::ParseFor() {
  ForStatement statement;
  LS_ASSIGN(statement.target, ParseTargetTuple(false));
  LS_TRY(tokens_.ExpectName("in"));
  LS_ASSIGN(statement.iterable, expressions_.ParseTuple(false));
  if (tokens_.SkipName("if")) {
    LS_ASSIGN(statement.filter, expressions_.ParseExpression());
  }
  if (tokens_.IsName("recursive"))
    return AtLine(Unsupported("recursive loops are not offered"), tokens_.line());
  ++loops_;
  LS_ASSIGN(statement.body, ParseBlockUntil({"else", "endfor"}));
  --loops_;
  if (tokens_.SkipName("else")) {
    LS_ASSIGN(statement.otherwise, ParseBlock("endfor"));
  } else {
    LS_TRY(tokens_.ExpectName("endfor"));
  }
  return Statement::Node(std::move(statement));
}

Result<Statement::Node> Parser::ParseSet() {
  LS_ASSIGN(Target target, ParseTargetTuple(true));
  if (tokens_.SkipOperator("=")) {
    LS_ASSIGN(ExpressionPtr value, expressions_.ParseTuple());
    return Statement::Node(SetStatement{std::move(target), std::move(value)});
  }
  LS_ASSIGN(std::vector<BuiltinCall> filters, expressions_.ParseFilters());
  LS_ASSIGN(Body body, ParseBlock("endset"));
  return Statement::Node(SetBlockStatement{std::move(target), std::move(filters), std::move(body)});
}

Result<Statement::Node> Parser::ParseMacro() {
  MacroStatement macro;
  LS_ASSIGN(macro.name, tokens_.TakeName());
  if (IsReserved(macro.name)) return tokens_.Error(InQuotes(macro.name) + " cannot name a macro");
  LS_ASSIGN(macro.parameters, ParseParameters());
  const int loops = std::exchange(loops_, 0);
  LS_ASSIGN(macro.body, ParseBlock("endmacro"));
  loops_ = loops;
  return Statement::Node(std::move(macro));
}

Result<std::vector<MacroStatement::Parameter>> Parser::ParseParameters() {
  LS_TRY(tokens_.ExpectOperator("("));
  std::vector<MacroStatement::Parameter> parameters;
  while (!tokens_.SkipOperator(")")) {
    if (!parameters.empty()) {
      LS_TRY(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator(")")) break;
    }
    MacroStatement::Parameter parameter;
    LS_ASSIGN(parameter.name, tokens_.TakeName());
    if (IsReserved(parameter.name))
      return tokens_.Error(InQuotes(parameter.name) + " cannot name a parameter");
    const bool after_default = !parameters.empty() && parameters.back().otherwise != nullptr;
    if (tokens_.SkipOperator("=")) {
      LS_ASSIGN(parameter.otherwise, expressions_.ParseExpression());
    } else if (after_default) {
      return tokens_.Error("the parameter '" + parameter.name +
                           "' without a default follows one that has one");
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

Result<Statement::Node> Parser::ParseWith() {
  ScopeStatement scope;
  while (tokens_.current().kind != TokenKind::kBlockEnd) {
    if (!scope.variables.empty()) LS_TRY(tokens_.ExpectOperator(","));
    LS_ASSIGN(Target target, ParseTarget(false));
    LS_TRY(tokens_.ExpectOperator("="));
    LS_ASSIGN(ExpressionPtr value, expressions_.ParseExpression());
    scope.variables.emplace_back(std::move(target), std::move(value));
  }
  LS_ASSIGN(scope.body, ParseBlock("endwith"));
  return Statement::Node(std::move(scope));
}

// Marks what the assistant wrote, for training; output as it is.
Result<Statement::Node> Parser::ParseGeneration() {
  ScopeStatement scope;
  LS_ASSIGN(scope.body, ParseBlock("endgeneration"));
  return Statement::Node(std::move(scope));
}

Result<Statement::Node> Parser::ParseFilterBlock() {
  FilterBlockStatement statement;
  LS_ASSIGN(statement.filters, expressions_.ParseFilterTag());
  LS_ASSIGN(statement.body, ParseBlock("endfilter"));
  return Statement::Node(std::move(statement));
}

Result<Statement::Node> Parser::ParseLoopControl(const std::string& tag) {
  if (loops_ == 0) return tokens_.Error(InQuotes(tag) + " outside of a loop");
  if (tag == "break") return Statement::Node(BreakStatement{});
  return Statement::Node(ContinueStatement{});
}

// A name, an attribute of a namespace, or a tuple in parentheses.
Result<Target> Parser::ParseTarget(bool with_namespace) {
  const TokenStream::Level level(tokens_);
  if (!level) return tokens_.TooDeep();
  if (tokens_.SkipOperator("(")) {
    LS_ASSIGN(Target target, ParseTargetTuple(with_namespace));
    LS_TRY(tokens_.ExpectOperator(")"));
    return target;
  }
  Target target{Target::Kind::kName, {}, {}, {}};
  LS_ASSIGN(target.name, tokens_.TakeName());
  if (IsReserved(target.name)) return tokens_.Error(InQuotes(target.name) + " cannot be assigned to");
  if (with_namespace && tokens_.SkipOperator(".")) {
    target.kind = Target::Kind::kNamespaceAttribute;
    LS_ASSIGN(target.attribute, tokens_.TakeName());
  }
  return target;
}

Result<Target> Parser::ParseTargetTuple(bool with_namespace) {
  LS_ASSIGN(Target first, ParseTarget(with_namespace));
  if (!tokens_.IsOperator(",")) return first;
  Target tuple{Target::Kind::kTuple, {}, {}, {}};
  tuple.items.push_back(std::move(first));
  while (tokens_.SkipOperator(",")) {
    if (tokens_.IsName("in") || tokens_.IsOperator("=") || tokens_.IsOperator(")")) break;
    LS_ASSIGN(Target item, ParseTarget(with_namespace));
    tuple.items.push_back(std::move(item));
  }
  return tuple;
}

}  // namespace

Result<Body> ParseTemplate(std::string_view source) {
  LS_ASSIGN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace longspec::jinja
