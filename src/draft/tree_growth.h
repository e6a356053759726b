// SPDX-License-Identifier: Apache-2.0
//
// Growing a tree level by level from a model's probabilities, whatever the model is. A node's score is the
// probability of its path under the model; the final tree is the most probable nodes that were found, as many
// as the budget allows. Since no child is more probable than its parent, that set is closed under parents.
// Ties go to the smaller (level, column), so the same probabilities always make the same tree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/draft_task.h"
#include "draft/drafter.h"
#include "draft/tree_shape.h"
#include "sampling/top_tokens.h"
#include "tree/token_tree.h"

namespace longspec {

// A candidate, in order of (level, column). Node 0 is the root.
struct GrownNode {
  int32_t token = 0;
  int32_t parent = -1;
  int32_t depth = 0;
  double log_prob = 0.0;  // of the path from the root
};

class GrowthModel {
 public:
  virtual ~GrowthModel() = default;
  // For each of `which` (nodes of one depth, each named once in a tree's life, their parents before them):
  // its k most probable next tokens by descending probability, equal ones by ascending token; fewer if there
  // are fewer. `next` has one entry per node of `which`.
  virtual DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                           std::vector<std::vector<TokenScore>>& next) = 0;
};

// What growing took, for tests and reports.
struct GrowthReport {
  std::vector<int> rows;         // of each Expand, the root's first
  std::vector<double> expected;  // kOptTree: expected accepted length with each level
  int n_candidates = 0;          // nodes that were found, the root not counted
};

// Adds to `tree`, which holds its root. An error of the model leaves the tree as it was.
DraftTask GrowTree(const TreeShape& shape, const DraftBudget& budget, GrowthModel& model, TokenTree& tree,
                   GrowthReport* report = nullptr);
// Of a model that never waits.
inline Status GrowTreeNow(const TreeShape& shape, const DraftBudget& budget, GrowthModel& model,
                          TokenTree& tree, GrowthReport* report = nullptr) {
  return RunNow(GrowTree(shape, budget, model, tree, report));
}

// Growing a tree by heads, one for each level, that read one state of the target and do not see the tokens
// before their own (Medusa, TokenSwift): all nodes of a level have the same children. `Growth`: the
// GrowthModel that it is.

template <typename Growth>
class HeadGrowth : public Growth {
 protected:
  using Growth::Growth;

 private:
  // next[0]: the k most probable tokens of this head. Those of earlier levels were run for the same state.
  virtual DraftTask RunHead(int head, int k, std::vector<std::vector<TokenScore>>& next) = 0;

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) final {
    next.resize(1);
    LS_CO_TRY(co_await RunHead(nodes[static_cast<size_t>(which[0])].depth, k, next));
    next.resize(which.size(), next[0]);
    co_return Status();
  }
};

}  // namespace longspec
