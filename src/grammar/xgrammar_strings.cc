// SPDX-License-Identifier: Apache-2.0
#include "grammar/xgrammar_strings.h"

#include <stdexcept>
#include <utility>

#include "grammar/xgrammar_guard.h"

namespace longspec {

std::shared_ptr<const StringAutomaton> XgrammarString(const std::string& regex) {
  if (!IsStringRulesLine(regex)) return nullptr;
  XgrammarGuard* const guard = XgrammarGuard::OfThread();
  if (guard != nullptr && guard->strings().count(regex) > 0) return guard->strings().at(regex);
  PatternWork work;
  auto compiled = CompileStringRules(ParseStringRulesLine(regex), work);
  if (!compiled.ok()) throw std::runtime_error(compiled.status().message());
  auto string = std::make_shared<const StringAutomaton>(*std::move(compiled));
  if (guard != nullptr) guard->strings().emplace(regex, string);
  return string;
}

}  // namespace longspec
