// SPDX-License-Identifier: Apache-2.0
//
// One tree of several proposals: the nodes with the best scores, whoever they come from, within a budget. A
// token that several propose is one node, with the best score, and TreeNode::source says whose it was first.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tree/token_tree.h"

namespace longspec {

class TreeMerger {
 public:
  // Adds nodes of the proposals, whose roots stand for node `at` of the tree, until the tree has max_nodes
  // besides its root. Scores are those of the proposals times that node's; proposal i is source
  // first_source + i. Of equal scores the proposal named first wins, then the node it proposed first.
  void AddBest(std::span<const TokenTree> proposals, int max_nodes, TokenTree& tree, int at = 0,
               int first_source = 0);

 private:
  // A proposal's node whose parent is in the merged tree.
  struct Candidate {
    float score;
    size_t proposal;
    int node;    // of the proposal
    int parent;  // of the merged tree
  };

  static bool Better(const Candidate& a, const Candidate& b);
  void AddCandidates(std::span<const TokenTree> proposals, size_t proposal, int node, int merged);

  std::vector<Candidate> candidates_;
};

}  // namespace longspec
