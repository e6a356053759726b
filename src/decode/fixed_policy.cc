// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "decode/policy.h"

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
    return {.max_nodes = nodes, .max_depth = std::min(depth, nodes)};
  }

  bool WorthVerifying(const TokenTree& tree) const override { return tree.size() - 1 >= min_nodes_; }

  void Observe(const TokenTree&, const Accepted&) override {}

 private:
  int max_nodes_;
  int min_nodes_;
};

}  // namespace

std::unique_ptr<Policy> MakeFixedPolicy(const SpeculationOptions& options) {
  return std::make_unique<FixedPolicy>(std::max(0, options.draft_n_max), options.draft_n_min);
}

}  // namespace longspec
