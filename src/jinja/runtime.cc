// SPDX-License-Identifier: Apache-2.0
#include "jinja/runtime.h"

namespace longspec::jinja {

bool Runtime::Exhausted(std::string message) {
  if (status_.ok()) status_ = ResourceExhausted(std::move(message));
  return false;
}

bool Runtime::Charge(size_t steps) {
  if (unmetered_) return true;
  if (!status_.ok()) return false;
  if (steps > static_cast<size_t>(limits_.max_steps - steps_)) {
    return Exhausted("the template needs more than " + std::to_string(limits_.max_steps) + " steps");
  }
  steps_ += static_cast<int64_t>(steps);
  return true;
}

bool Runtime::ChargeProduct(size_t bytes, size_t times) {
  size_t work = 0;
  if (__builtin_mul_overflow(bytes + 1, times + 1, &work)) work = SIZE_MAX;
  return ChargeBytes(work);
}

bool Runtime::CheckSize(size_t bytes) {
  if (bytes <= limits_.max_bytes) return true;
  return Exhausted("the template builds a text of more than " + std::to_string(limits_.max_bytes) + " bytes");
}

bool Runtime::Descend() {
  if (++depth_ <= kMaxDepth) return true;
  return Exhausted("the template nests more than " + std::to_string(kMaxDepth) + " levels deep");
}

Value Runtime::String(std::string text) {
  ChargeBytes(text.size());
  if (!unmetered_) CheckSize(text.size());
  return Value::Literal(std::move(text));
}

Value Runtime::NewList(std::vector<Value> items, ListKind kind) {
  Charge(kObjectSteps + 2 * items.size());
  return Value::Of(&lists_.emplace_back(List{std::move(items), kind}));
}

Value Runtime::NewPair(Value first, Value second) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return NewList(std::move(items), ListKind::kTuple);
}

Dict* Runtime::NewDict() {
  Charge(kObjectSteps);
  return &dicts_.emplace_back();
}

Namespace* Runtime::NewNamespace() {
  Charge(kObjectSteps);
  return &namespaces_.emplace_back();
}

Loop* Runtime::NewLoop(std::vector<Value> items) {
  Charge(kObjectSteps);
  Loop* loop = &loops_.emplace_back();
  loop->items = std::move(items);
  return loop;
}

Macro* Runtime::NewMacro(const MacroStatement* definition, std::shared_ptr<Scope> closure) {
  Charge(kObjectSteps);
  return &macros_.emplace_back(Macro{definition, std::move(closure)});
}

std::tm Runtime::Now() const {
  if (now_.has_value()) return *now_;
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

}  // namespace longspec::jinja
