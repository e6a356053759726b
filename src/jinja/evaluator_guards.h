// SPDX-License-Identifier: Apache-2.0
//
// What the evaluator changes for a while and must put back on every way out.
#pragma once

#include <memory>
#include <utility>

#include "jinja/evaluator.h"

namespace longspec::jinja {

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
