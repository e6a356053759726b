// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/evaluator.h"

namespace longspec::jinja {

Result<Value> Evaluator::Evaluate(const Expression& expression) {
  const Runtime::Level level(runtime_);
  if (!level || !runtime_.Charge(1)) return Locate(runtime_.status(), expression.line);
  Result<Value> value = std::visit([this](const auto& node) { return EvaluateNode(node); }, expression.node);
  if (!value.ok()) return Locate(value.status(), expression.line);
  if (!runtime_.ok()) return Locate(runtime_.status(), expression.line);
  return value;
}

Result<Value> Evaluator::EvaluateNode(const NameExpression& node) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto it = scope->variables.find(node.name);
    if (it != scope->variables.end()) return it->second;
  }
  if (const Builtin* function = FindFunction(node.name); function != nullptr)
    return Value::Function(function);
  return Value::Undefined(InQuotes(node.name) + " is undefined");
}

Result<Value> Evaluator::EvaluateNode(const AttributeExpression& node) {
  LS_ASSIGN(const Value object, Evaluate(*node.object));
  return GetAttribute(runtime_, object, node.name);
}

Result<Value> Evaluator::EvaluateNode(const ItemExpression& node) {
  LS_ASSIGN(const Value object, Evaluate(*node.object));
  LS_ASSIGN(const Value key, Evaluate(*node.key));
  return GetItem(runtime_, object, key);
}

Result<Value> Evaluator::EvaluateOr(const ExpressionPtr& expression, const Value& otherwise) {
  if (expression == nullptr) return otherwise;
  return Evaluate(*expression);
}

Result<Value> Evaluator::EvaluateNode(const SliceExpression& node) {
  LS_ASSIGN(const Value object, Evaluate(*node.object));
  LS_ASSIGN(const Value start, EvaluateOr(node.start, Value::None()));
  LS_ASSIGN(const Value stop, EvaluateOr(node.stop, Value::None()));
  LS_ASSIGN(const Value step, EvaluateOr(node.step, Value::None()));
  return GetSlice(runtime_, object, start, stop, step);
}

Result<Value> Evaluator::EvaluateNode(const CallExpression& node) {
  LS_ASSIGN(const Value callee, Evaluate(*node.callee));
  LS_ASSIGN(Arguments arguments, EvaluateArguments(node.arguments));
  switch (callee.type()) {
    case Value::Type::kMacro:
      return CallMacro(callee.macro(), std::move(arguments));
    case Value::Type::kFunction:
      return callee.function().call(runtime_, Value(), arguments);
    case Value::Type::kMethod:
      return callee.method().method->call(runtime_, callee.method().receiver, arguments);
    case Value::Type::kUndefined:
      break;
    default:
      return InvalidArgument(InQuotes(callee.TypeName()) + " object is not callable");
  }
  const Status missing = callee.UndefinedError();
  if (!std::holds_alternative<AttributeExpression>(node.callee->node)) return missing;
  return Unsupported(missing.message() + ", or the method is not offered");
}

Result<Arguments> Evaluator::EvaluateArguments(const CallArguments& arguments) {
  Arguments values;
  for (const ExpressionPtr& argument : arguments.positional) {
    LS_ASSIGN(Value value, Evaluate(*argument));
    values.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.named) {
    LS_ASSIGN(Value value, Evaluate(*argument));
    values.named.emplace_back(name, std::move(value));
  }
  return values;
}

Result<Value> Evaluator::CallBuiltin(const BuiltinCall& call, const Value& self) {
  LS_ASSIGN(const Arguments arguments, EvaluateArguments(call.arguments));
  Result<Value> value = call.builtin->call(runtime_, self, arguments);
  if (!value.ok()) return Locate(value.status(), call.line);
  return value;
}

Result<Value> Evaluator::ApplyFilters(const std::vector<BuiltinCall>& filters, Value value) {
  for (const BuiltinCall& filter : filters) {
    LS_ASSIGN(value, CallBuiltin(filter, value));
  }
  return value;
}

Result<Value> Evaluator::EvaluateNode(const FilterExpression& node) {
  LS_ASSIGN(const Value operand, Evaluate(*node.operand));
  return CallBuiltin(node.filter, operand);
}

Result<Value> Evaluator::EvaluateNode(const TestExpression& node) {
  LS_ASSIGN(const Value operand, Evaluate(*node.operand));
  LS_ASSIGN(const Value holds, CallBuiltin(node.test, operand));
  return Value::Bool(Truthy(holds) != node.negated);
}

Result<Value> Evaluator::EvaluateNode(const UnaryExpression& node) {
  LS_ASSIGN(const Value operand, Evaluate(*node.operand));
  switch (node.op) {
    case UnaryOperator::kNot:
      return Value::Bool(!Truthy(operand));
    case UnaryOperator::kNegate:
      return Negate(operand);
    case UnaryOperator::kPlus:
      return UnaryPlus(operand);
  }
  return operand;
}

Result<Value> Evaluator::EvaluateNode(const BinaryExpression& node) {
  LS_ASSIGN(const Value left, Evaluate(*node.left));
  LS_ASSIGN(const Value right, Evaluate(*node.right));
  return Arithmetic(runtime_, node.op, left, right);
}

Result<Value> Evaluator::EvaluateNode(const LogicalExpression& node) {
  LS_ASSIGN(Value left, Evaluate(*node.left));
  if (Truthy(left) != node.is_and) return left;
  return Evaluate(*node.right);
}

Result<bool> Evaluator::Compare(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual:
      return Equals(runtime_, left, right);
    case Comparison::kNotEqual: {
      LS_ASSIGN(const bool equal, Equals(runtime_, left, right));
      return !equal;
    }
    case Comparison::kIn:
      return Contains(runtime_, right, left);
    case Comparison::kNotIn: {
      LS_ASSIGN(const bool contained, Contains(runtime_, right, left));
      return !contained;
    }
    default:
      break;
  }
  LS_ASSIGN(const std::partial_ordering order, Order(runtime_, left, right));
  switch (comparison) {
    case Comparison::kLess:
      return order < 0;
    case Comparison::kLessEqual:
      return order <= 0;
    case Comparison::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Result<Value> Evaluator::EvaluateNode(const CompareExpression& node) {
  LS_ASSIGN(Value left, Evaluate(*node.first));
  for (const auto& [comparison, operand] : node.rest) {
    LS_ASSIGN(Value right, Evaluate(*operand));
    LS_ASSIGN(const bool holds, Compare(comparison, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Evaluator::EvaluateNode(const ConcatExpression& node) {
  TextBuilder text(runtime_);
  for (const ExpressionPtr& part : node.parts) {
    LS_ASSIGN(const Value value, Evaluate(*part));
    LS_TRY(AppendText(runtime_, value, &text));
  }
  return runtime_.String(text.Take());
}

Result<Value> Evaluator::EvaluateNode(const ConditionalExpression& node) {
  LS_ASSIGN(const Value condition, Evaluate(*node.condition));
  if (Truthy(condition)) return Evaluate(*node.then);
  return EvaluateOr(node.otherwise, Value::Undefined("the condition is false and there is no else"));
}

Result<Value> Evaluator::EvaluateNode(const ListExpression& node) {
  std::vector<Value> items;
  for (const ExpressionPtr& item : node.items) {
    LS_ASSIGN(Value value, Evaluate(*item));
    items.push_back(std::move(value));
  }
  return runtime_.NewList(std::move(items), node.kind);
}

Result<Value> Evaluator::EvaluateNode(const DictExpression& node) {
  Dict* dict = runtime_.NewDict();
  for (const auto& [key_expression, value_expression] : node.entries) {
    LS_ASSIGN(const Value key, Evaluate(*key_expression));
    LS_ASSIGN(Value value, Evaluate(*value_expression));
    LS_TRY(dict->Set(runtime_, key, std::move(value)));
  }
  return Value::Of(dict);
}

Result<Value> Evaluator::CallMacro(const Macro& macro, Arguments arguments) {
  const ScopeGuard scope(this, macro.closure);
  const OutputGuard output(this);
  LS_TRY(BindParameters(*macro.definition, std::move(arguments)));
  LS_TRY(Execute(macro.definition->body).status());
  return runtime_.String(output_->Take());
}

Status Evaluator::BindParameters(const MacroStatement& definition, Arguments arguments) {
  const std::string macro = "macro '" + definition.name + "'";
  const size_t given = arguments.positional.size();
  if (given > definition.parameters.size()) {
    return InvalidArgument(macro + " takes no more than " + std::to_string(definition.parameters.size()) +
                           " arguments, got " + std::to_string(given));
  }
  size_t matched = 0;
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const MacroStatement::Parameter& parameter = definition.parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == parameter.name; });
    const bool has_name = named != arguments.named.end();
    if (has_name) ++matched;
    if (i < given && has_name) return InvalidArgument(macro + " got '" + parameter.name + "' twice");
    if (i < given) {
      Define(parameter.name, std::move(arguments.positional[i]));
    } else if (has_name) {
      Define(parameter.name, std::move(named->second));
    } else {
      const Value missing = Value::Undefined("parameter '" + parameter.name + "' was not provided");
      LS_ASSIGN(Value value, EvaluateOr(parameter.otherwise, missing));
      Define(parameter.name, std::move(value));
    }
  }
  if (matched == arguments.named.size()) return {};
  return InvalidArgument(macro + " got an argument by a name that none of its parameters has, or twice");
}

}  // namespace longspec::jinja
