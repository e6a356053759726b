// SPDX-License-Identifier: Apache-2.0
//
// How much to speculate in the next round, from what is known before it: never from the target's randomness.
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "verify/verify.h"

namespace longspec {

struct PolicyInput {
  int context = 0;     // committed tokens
  int room = 0;        // positions left in the cache, the root's included
  int max_tokens = 0;  // tokens the round may commit
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual DraftBudget Budget(const PolicyInput& input) = 0;
  // True if a tree of this many proposed nodes is worth verifying.
  virtual bool WorthVerifying(const TokenTree& tree) const = 0;
  virtual void Observe(const TokenTree& tree, const Accepted& accepted) = 0;
};

// Always the budget of the options (draft_n_max nodes), cut to what the cache and the token limit leave room
// for.
std::unique_ptr<Policy> MakeFixedPolicy(const SpeculationOptions& options);

}  // namespace longspec
