// SPDX-License-Identifier: Apache-2.0
//
// Runs a parsed template once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/runtime.h"
#include "longspec/status.h"

namespace longspec::jinja {

// For one rendering, one thread; the runtime and the template must outlive it.
class Evaluator {
 public:
  explicit Evaluator(Runtime& runtime)
      : runtime_(runtime),
        scope_(std::make_shared<Scope>(nullptr)),
        output_(std::make_unique<TextBuilder>(runtime)) {}

  // A variable that the template sees everywhere.
  void Define(std::string_view name, Value value) {
    scope_->variables.insert_or_assign(std::string(name), value);
  }
  Result<std::string> Run(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class ScopeGuard;
  class OutputGuard;

  Result<Flow> Execute(const Body& body);
  Result<Flow> Execute(const Statement& statement);
  Result<Flow> ExecuteNode(const TextStatement& node);
  Result<Flow> ExecuteNode(const PrintStatement& node);
  Result<Flow> ExecuteNode(const IfStatement& node);
  Result<Flow> ExecuteNode(const ForStatement& node);
  Result<Flow> ExecuteNode(const SetStatement& node);
  Result<Flow> ExecuteNode(const SetBlockStatement& node);
  Result<Flow> ExecuteNode(const MacroStatement& node);
  Result<Flow> ExecuteNode(const ScopeStatement& node);
  Result<Flow> ExecuteNode(const FilterBlockStatement& node);
  Result<Flow> ExecuteNode(const BreakStatement& node);
  Result<Flow> ExecuteNode(const ContinueStatement& node);
  Result<std::vector<Value>> LoopItems(const ForStatement& node);
  Result<Flow> RunLoop(const ForStatement& node, Loop* loop);
  Status Assign(const Target& target, const Value& value);
  Status AssignAttribute(const Target& target, const Value& value);
  // The output of a body in a scope of its own, with filters applied; nothing if the body leaves the loop
  // around it.
  struct Captured {
    Flow flow;
    Value text;
  };
  Result<Captured> Capture(const Body& body, const std::vector<BuiltinCall>& filters);

  Result<Value> Evaluate(const Expression& expression);
  Result<Value> EvaluateNode(const LiteralExpression& node) { return node.value; }
  Result<Value> EvaluateNode(const NameExpression& node);
  Result<Value> EvaluateNode(const AttributeExpression& node);
  Result<Value> EvaluateNode(const ItemExpression& node);
  Result<Value> EvaluateNode(const SliceExpression& node);
  Result<Value> EvaluateNode(const CallExpression& node);
  Result<Value> EvaluateNode(const FilterExpression& node);
  Result<Value> EvaluateNode(const TestExpression& node);
  Result<Value> EvaluateNode(const UnaryExpression& node);
  Result<Value> EvaluateNode(const BinaryExpression& node);
  Result<Value> EvaluateNode(const LogicalExpression& node);
  Result<Value> EvaluateNode(const CompareExpression& node);
  Result<Value> EvaluateNode(const ConcatExpression& node);
  Result<Value> EvaluateNode(const ConditionalExpression& node);
  Result<Value> EvaluateNode(const ListExpression& node);
  Result<Value> EvaluateNode(const DictExpression& node);
  Result<bool> Compare(Comparison comparison, const Value& left, const Value& right);
  Result<Value> EvaluateOr(const ExpressionPtr& expression, const Value& otherwise);
  Result<Arguments> EvaluateArguments(const CallArguments& arguments);
  Result<Value> CallBuiltin(const BuiltinCall& call, const Value& self);
  Result<Value> ApplyFilters(const std::vector<BuiltinCall>& filters, Value value);
  Result<Value> CallMacro(const Macro& macro, Arguments arguments);
  Status BindParameters(const MacroStatement& definition, Arguments arguments);

  // The error with the line it arose at, once.
  Status Locate(const Status& status, int line);

  Runtime& runtime_;
  std::shared_ptr<Scope> scope_;
  std::unique_ptr<TextBuilder> output_;
  bool located_ = false;
};

// A new scope inside `parent`.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator* evaluator, std::shared_ptr<Scope> parent)
      : evaluator_(evaluator),
        outer_(std::exchange(evaluator->scope_, std::make_shared<Scope>(std::move(parent)))) {}
  ~ScopeGuard() { evaluator_->scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Evaluator* evaluator_;
  std::shared_ptr<Scope> outer_;
};

// A new, empty output.
class Evaluator::OutputGuard {
 public:
  explicit OutputGuard(Evaluator* evaluator)
      : evaluator_(evaluator),
        outer_(std::exchange(evaluator->output_, std::make_unique<TextBuilder>(evaluator->runtime_))) {}
  ~OutputGuard() { evaluator_->output_ = std::move(outer_); }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;

 private:
  Evaluator* evaluator_;
  std::unique_ptr<TextBuilder> outer_;
};

}  // namespace longspec::jinja
