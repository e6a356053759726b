// SPDX-License-Identifier: Apache-2.0
//
// Rules about the tokens of an answer rather than about its text: which ones there may be, which sequences of
// them may not be, and how long it lasts before it may end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/constraint.h"

namespace longspec {

struct TokenRules {
  std::vector<int32_t> begin = {};    // what the answer begins with; the other rules are about what follows
  std::vector<int32_t> allowed = {};  // no others; empty: all
  std::vector<std::vector<int32_t>> forbidden = {};  // sequences; one of one token never occurs at all
  std::vector<int32_t> ends = {};                    // tokens that end an answer
  int min_tokens = 0;                                // none of `ends` is among the first so many

  bool any() const { return !begin.empty() || !allowed.empty() || !forbidden.empty() || min_tokens > 0; }
};

// `n_logits` of a row. `inner` (may be null) is what the answer must be besides, behind what it begins with:
// it is followed, and a token must be allowed by both. REQUIRES: tokens of `begin`, `allowed` and `ends` are
// below n_logits, sequences are not empty.
std::unique_ptr<Constraint> MakeTokenConstraint(std::shared_ptr<const TokenRules> rules, int n_logits,
                                                std::unique_ptr<Constraint> inner);

}  // namespace longspec
