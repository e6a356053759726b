// SPDX-License-Identifier: Apache-2.0
//
// Where xgrammar meets strings of JSON schemas: its patterns are lines of StringRules
// (cmake/xgrammar_edits.cmake).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "pattern/string_rules.h"

namespace longspec {

// The automaton of a line; null: it is a pattern of xgrammar's own. Made once for as long as the
// XgrammarGuard of this thread lives. Throws what it is that cannot be kept.
std::shared_ptr<const StringAutomaton> XgrammarString(const std::string& regex);

template <typename Strings>
size_t XgrammarStringBytes(const Strings& strings) {
  size_t n = 0;
  for (const auto& string : strings) n += string.automaton == nullptr ? 0 : string.automaton->bytes();
  return n;
}

}  // namespace longspec
