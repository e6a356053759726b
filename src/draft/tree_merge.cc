// SPDX-License-Identifier: Apache-2.0
#include "draft/tree_merge.h"

#include <algorithm>

namespace longspec {

bool TreeMerger::Better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.proposal != b.proposal ? a.proposal < b.proposal : a.node < b.node;
}

void TreeMerger::AddCandidates(std::span<const TokenTree> proposals, size_t proposal, int node, int merged) {
  const TokenTree& own = proposals[proposal];
  for (int child = own.node(node).first_child; child >= 0; child = own.node(child).next_sibling) {
    candidates_.push_back(
        {.score = own.node(child).score, .proposal = proposal, .node = child, .parent = merged});
  }
}

void TreeMerger::AddBest(std::span<const TokenTree> proposals, int max_nodes, TokenTree& tree, int at,
                         int first_source) {
  candidates_.clear();
  const float reached = tree.node(at).score;
  for (size_t i = 0; i < proposals.size(); ++i) AddCandidates(proposals, i, 0, at);
  while (tree.size() <= max_nodes && !candidates_.empty()) {
    const auto best = std::min_element(candidates_.begin(), candidates_.end(), Better);
    const Candidate taken = *best;
    candidates_.erase(best);
    const int merged = tree.AddChild(taken.parent, proposals[taken.proposal].node(taken.node).token,
                                     taken.score * reached, first_source + static_cast<int>(taken.proposal));
    AddCandidates(proposals, taken.proposal, taken.node, merged);
  }
}

}  // namespace longspec
