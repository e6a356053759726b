// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "draft/drafter.h"
#include "draft/portfolio_drafter.h"
#include "policy/policy.h"

namespace longspec {
namespace {

class FixedPolicy final : public Policy {
 public:
  FixedPolicy(int max_nodes, int min_nodes) : max_nodes_(max_nodes), min_nodes_(min_nodes) {}

  DraftBudget Budget(const PolicyInput& input) override {
    // The root takes one position, and a round commits one token more than the depth it accepts.
    const int depth = std::max(0, input.max_tokens - 1);
    const int nodes = std::clamp(input.room - 1, 0, max_nodes_);
    if (depth == 0 || nodes == 0) return {};
    return {.max_nodes = nodes, .max_depth = std::min(depth, nodes), .least_chance = kLeastChance};
  }

  TokenTree Choose(TokenTree proposed) override {
    return proposed.size() - 1 >= min_nodes_ ? std::move(proposed) : TokenTree(proposed.node(0).token);
  }

  void Observe(const RoundResult& round) override { ++(round.tree.size() > 1 ? speculated_ : plain_); }

  PolicyReport report() const override {
    return {.policy = "fixed",
            .last_decision = "",
            .decisions = {{"speculated", speculated_}, {"plain", plain_}}};
  }

 private:
  int max_nodes_;
  int min_nodes_;
  int64_t speculated_ = 0, plain_ = 0;
};

}  // namespace

std::unique_ptr<Policy> MakeFixedPolicy(const SpeculationOptions& options) {
  return std::make_unique<FixedPolicy>(std::max(0, options.draft_n_max), options.draft_n_min);
}

bool WantsAdaptivePolicy(const SpeculationOptions& options) {
  if (!options.policy.empty()) return options.policy == "adaptive";
  return IsPortfolio(options.type);
}

Status CheckPolicy(const SpeculationOptions& options) {
  if (options.policy.empty() || options.policy == "adaptive" || options.policy == "fixed") return {};
  return InvalidArgument("--spec-policy " + options.policy + ": unknown; known are adaptive, fixed");
}

}  // namespace longspec
