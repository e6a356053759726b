// SPDX-License-Identifier: Apache-2.0
//
// From the text of a grammar (longspec/generation.h: GrammarText) to what it allows: compiled once for a
// vocabulary, then immutable, shared, and known by its text. Compiling runs on the caller's thread, which
// should not be the one that runs rounds: it takes from milliseconds to seconds. Texts come from strangers:
// what is too large or takes too long is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/constraint.h"
#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec {

// The tokens that answers are made of.
struct GrammarVocabulary {
  // Bytes of each token; empty: it stands for no text, and no constrained answer has it.
  std::vector<std::string> tokens;
  int n_logits = 0;  // of a row; at least tokens.size()
  std::vector<int32_t> end_tokens;
  // As the model writes text; for Constraint::Forced. Null: nothing is forced.
  std::function<std::vector<int32_t>(std::string_view)> tokenize;
};

// A compiled grammar. Immutable; thread-safe.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // For one answer, at its beginning. The grammar may be dropped before it.
  virtual Result<std::unique_ptr<Constraint>> NewConstraint() const = 0;
  virtual size_t bytes() const = 0;  // memory held, about
};

struct GrammarLimits {
  size_t text_bytes = size_t{256} << 10;
  double compile_ms = 10'000;               // of a processor's time
  double look_ahead_ms = 50;                // the same, of one Constraint::Forced
  size_t cached_bytes = size_t{256} << 20;  // of compiled grammars that nobody uses
};

// Thread-safe.
class GrammarCompiler {
 public:
  // kUnsupported: this program was built without grammars.
  static Result<std::unique_ptr<GrammarCompiler>> Create(GrammarVocabulary vocabulary,
                                                         const GrammarLimits& limits = {});
  virtual ~GrammarCompiler() = default;
  // REQUIRES: text.kind is not kNone. kInvalidArgument: what is wrong with the text; kUnsupported: what
  // cannot be kept to; kResourceExhausted: a limit.
  virtual Result<std::shared_ptr<const Grammar>> Compile(const GrammarText& text) = 0;
};

// Whether Create can succeed.
bool HasGrammars();

}  // namespace longspec
