// SPDX-License-Identifier: Apache-2.0
//
// A tree of proposed tokens below the last committed one. Node 0 is the root: that last token, whose keys and
// values are not yet in the cache. Parents precede children; siblings carry distinct tokens (a duplicate is
// merged: two equal siblings would be one lottery ticket bought twice). Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longspec {

struct TreeNode {
  int32_t token = 0;
  int32_t parent = -1;       // node index; -1 for the root
  int32_t depth = 0;         // the root's is 0; the node's absolute position is root position + depth
  int32_t first_child = -1;  // node indices, in order of addition
  int32_t next_sibling = -1;
  float score = 1.0F;  // the drafter's estimate that this node is reached, in [0, 1]
  int32_t source = 0;  // which drafter proposed it first
};

class TokenTree {
 public:
  explicit TokenTree(int32_t root_token);

  // Adds a child, or returns the existing child with the same token (its score is raised to the larger one).
  int AddChild(int parent, int32_t token, float score = 1.0F, int source = 0);

  // The child of `parent` with this token, or -1.
  int FindChild(int parent, int32_t token) const;

  // Node indices from the root (included) to `node` (included), in depth order.
  std::vector<int32_t> PathTo(int node) const;
  // The tokens of that path below the root.
  std::vector<int32_t> TokensTo(int node) const;

  int size() const { return static_cast<int>(nodes_.size()); }  // the root included
  int max_depth() const { return max_depth_; }
  bool is_chain() const;  // every node has at most one child
  const TreeNode& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  std::span<const TreeNode> nodes() const { return nodes_; }

 private:
  std::vector<TreeNode> nodes_;
  int max_depth_ = 0;
};

// The tree of the kept nodes, in their order, with their scores and sources. The root is always kept; a node
// whose parent is not kept is dropped with it. REQUIRES: keep.size() == tree.size()
TokenTree Pruned(const TokenTree& tree, const std::vector<bool>& keep);

}  // namespace longspec
