// SPDX-License-Identifier: Apache-2.0
//
// A constraint that walks a grammar compiled by xgrammar (Dong et al. 2024, arXiv:2411.15100).
#pragma once

#include <memory>

#include "grammar/grammar.h"
#include "xgrammar/compiler.h"

namespace longspec {

// At the beginning of an answer. The vocabulary is that of the compiled grammar; `look_ahead_ms`:
// GrammarLimits.
std::unique_ptr<Constraint> MakeXgrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                                                   std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                   double look_ahead_ms);

// What xgrammar threw, as one line without its own notes.
std::string XgrammarMessage(const std::exception& error);

}  // namespace longspec
