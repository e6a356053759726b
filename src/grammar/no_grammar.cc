// SPDX-License-Identifier: Apache-2.0
//
// In place of the compiler, where the sources of xgrammar were not there (cmake/xgrammar.cmake).
#include "grammar/grammar.h"

namespace longspec {

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::Create(GrammarVocabulary, const GrammarLimits&) {
  return Unsupported(
      "grammars, JSON schemas and tools that must be called need xgrammar, which this program was built "
      "without: "
      "run tools/get_xgrammar and build again");
}

bool HasGrammars() { return false; }

}  // namespace longspec
