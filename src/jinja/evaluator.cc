// SPDX-License-Identifier: Apache-2.0
//
// Statements; expressions are in evaluator_expressions.cc.
#include "jinja/evaluator.h"

#include "base/status_macros.h"
#include "jinja/lexer.h"

namespace longspec::jinja {

Status Evaluator::Locate(const Status& status, int line) {
  if (located_) return status;
  located_ = true;
  return AtLine(status, line);
}

Result<std::string> Evaluator::Run(const Body& body) {
  LS_TRY(Execute(body).status());
  if (!runtime_.ok()) return Locate(runtime_.status(), body.empty() ? 1 : body.back().line);
  return output_->Take();
}

Result<Evaluator::Flow> Evaluator::Execute(const Body& body) {
  for (const Statement& statement : body) {
    LS_ASSIGN(const Flow flow, Execute(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::Execute(const Statement& statement) {
  const Runtime::Level level(runtime_);
  if (!level || !runtime_.Charge(1)) return Locate(runtime_.status(), statement.line);
  Result<Flow> flow = std::visit([this](const auto& node) { return ExecuteNode(node); }, statement.node);
  if (!flow.ok()) return Locate(flow.status(), statement.line);
  return flow;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const TextStatement& node) {
  output_->Append(node.text);
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const PrintStatement& node) {
  LS_ASSIGN(const Value value, Evaluate(*node.value));
  LS_TRY(AppendText(runtime_, value, output_.get()));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const IfStatement& node) {
  for (const auto& [condition, body] : node.branches) {
    LS_ASSIGN(const Value value, Evaluate(*condition));
    if (Truthy(value)) return Execute(body);
  }
  return Execute(node.otherwise);
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const ForStatement& node) {
  LS_ASSIGN(std::vector<Value> items, LoopItems(node));
  if (items.empty()) {
    const ScopeGuard scope(this, scope_);
    return Execute(node.otherwise);
  }
  Loop* loop = runtime_.NewLoop(std::move(items));
  Result<Flow> flow = RunLoop(node, loop);
  loop->items = {};  // the variable may live on; its memory need not
  return flow;
}

// What the loop runs over: the filter is applied first, so that loop.length counts what is left.
Result<std::vector<Value>> Evaluator::LoopItems(const ForStatement& node) {
  LS_ASSIGN(const Value iterable, Evaluate(*node.iterable));
  LS_ASSIGN(std::vector<Value> items, Iterate(runtime_, iterable));
  if (node.filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const ScopeGuard scope(this, scope_);
    LS_TRY(Assign(node.target, item));
    LS_ASSIGN(const Value keep, Evaluate(*node.filter));
    if (Truthy(keep)) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Evaluator::Flow> Evaluator::RunLoop(const ForStatement& node, Loop* loop) {
  const Value loop_value = Value::Of(loop);
  for (; loop->index0 < loop->items.size(); ++loop->index0) {
    const ScopeGuard scope(this, scope_);
    if (!runtime_.Charge(1)) return runtime_.status();
    Define("loop", loop_value);
    LS_TRY(Assign(node.target, loop->items[loop->index0]));
    LS_ASSIGN(const Flow flow, Execute(node.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const SetStatement& node) {
  LS_ASSIGN(const Value value, Evaluate(*node.value));
  LS_TRY(Assign(node.target, value));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const SetBlockStatement& node) {
  LS_ASSIGN(const Captured captured, Capture(node.body, node.filters));
  if (captured.flow == Flow::kNext) LS_TRY(Assign(node.target, captured.text));
  return captured.flow;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const MacroStatement& node) {
  Define(node.name, Value::Of(runtime_.NewMacro(&node, scope_)));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const ScopeStatement& node) {
  std::vector<Value> values;  // none sees the others
  for (const auto& [target, expression] : node.variables) {
    LS_ASSIGN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  const ScopeGuard scope(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) LS_TRY(Assign(node.variables[i].first, values[i]));
  return Execute(node.body);
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const FilterBlockStatement& node) {
  LS_ASSIGN(const Captured captured, Capture(node.body, node.filters));
  LS_TRY(AppendText(runtime_, captured.text, output_.get()));
  return captured.flow;
}

Result<Evaluator::Flow> Evaluator::ExecuteNode(const BreakStatement&) { return Flow::kBreak; }
Result<Evaluator::Flow> Evaluator::ExecuteNode(const ContinueStatement&) { return Flow::kContinue; }

Status Evaluator::Assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    Define(target.name, value);
    return {};
  }
  if (target.kind == Target::Kind::kNamespaceAttribute) return AssignAttribute(target, value);
  LS_ASSIGN(const std::vector<Value> items, Iterate(runtime_, value));
  if (items.size() != target.items.size()) {
    return InvalidArgument("cannot unpack " + std::to_string(items.size()) + " values into " +
                           std::to_string(target.items.size()) + " variables");
  }
  for (size_t i = 0; i < items.size(); ++i) LS_TRY(Assign(target.items[i], items[i]));
  return {};
}

Status Evaluator::AssignAttribute(const Target& target, const Value& value) {
  LS_ASSIGN(const Value object, EvaluateNode(NameExpression{target.name}));
  if (!object.Is(Value::Type::kNamespace)) {
    return InvalidArgument("cannot assign '" + target.name + "." + target.attribute + "': '" + target.name +
                           "' is no namespace");
  }
  if (!runtime_.Charge(8)) return runtime_.status();
  object.name_space().attributes.insert_or_assign(target.attribute, value);
  return {};
}

Result<Evaluator::Captured> Evaluator::Capture(const Body& body, const std::vector<BuiltinCall>& filters) {
  Captured captured{Flow::kNext, Value()};
  {
    const ScopeGuard scope(this, scope_);
    const OutputGuard output(this);
    LS_ASSIGN(captured.flow, Execute(body));
    if (captured.flow != Flow::kNext) return captured;
    captured.text = runtime_.String(output_->Take());
  }
  LS_ASSIGN(captured.text, ApplyFilters(filters, std::move(captured.text)));
  return captured;
}

}  // namespace longspec::jinja
