// SPDX-License-Identifier: Apache-2.0
//
// How often a proposed token is accepted once the token before it was: running estimates that forget, by who
// proposed it, its score, its depth and the length of the context. A group with few observations leans on
// what is known of coarser groups, and one with hardly any on the score itself, times what the proposer's
// scores were worth altogether. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tree/token_tree.h"

namespace longspec {

// Ranges of context lengths, [0, 1K), [1K, 2K), [2K, 4K), ...: what estimates and statistics are kept by.
int ContextBucket(int n_tokens);
int ContextBucketFrom(int bucket);  // the first length of a bucket

struct NodeKind {
  int source = 0;    // TreeNode::source
  int depth = 1;     // TreeNode::depth
  double score = 1;  // that it is accepted if its parent is, as the drafter's scores say: node's / parent's
  int context = 0;   // tokens
};

// The kind of a proposed node (not the root).
NodeKind KindOf(const TokenTree& tree, int node, int context);

class AcceptanceTable {
 public:
  double Estimate(const NodeKind& kind) const;
  // Another text begins: a group counts for no more observations than a quarter of what it can hold. So one
  // long answer is mostly forgotten, and of many short ones all that is known stays.
  void BeginText();
  // The text may have changed: what is known counts for a quarter of the observations it was.
  void Fade();
  void Add(const NodeKind& kind, bool accepted);

 private:
  // Groups, from coarse to fine: by source and score; by depth as well; by context as well.
  static constexpr int kLevels = 3;
  using Key = uint32_t;
  struct Cell {
    double tried = 0, accepted = 0;  // decayed counts
    void Keep(double share) { tried *= share, accepted *= share; }
  };
  static std::array<Key, kLevels> Keys(const NodeKind& kind);

  struct Promises {
    double promised = 0, accepted = 0;  // decayed sums of scores, and counts
    void Keep(double share) { promised *= share, accepted *= share; }
  };
  double Trust(int source) const;

  std::map<Key, Cell> cells_;
  std::map<int, Promises> trust_;  // by source
};

}  // namespace longspec
