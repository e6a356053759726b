// SPDX-License-Identifier: Apache-2.0
#include "tree/token_tree.h"

#include <algorithm>

#include "base/check.h"

namespace longspec {

TokenTree::TokenTree(int32_t root_token) { nodes_.push_back({.token = root_token}); }

int TokenTree::AddChild(int parent, int32_t token, float score, int source) {
  LS_CHECK(parent >= 0 && parent < size());
  int32_t last = -1;
  for (int32_t child = node(parent).first_child; child >= 0; child = node(child).next_sibling) {
    if (node(child).token == token) {
      float& known = nodes_[static_cast<size_t>(child)].score;
      known = std::max(known, score);
      return child;
    }
    last = child;
  }
  const int32_t added = size();
  const int32_t depth = node(parent).depth + 1;
  nodes_.push_back({.token = token, .parent = parent, .depth = depth, .score = score, .source = source});
  if (last >= 0) {
    nodes_[static_cast<size_t>(last)].next_sibling = added;
  } else {
    nodes_[static_cast<size_t>(parent)].first_child = added;
  }
  max_depth_ = std::max(max_depth_, static_cast<int>(depth));
  return added;
}

int TokenTree::FindChild(int parent, int32_t token) const {
  LS_CHECK(parent >= 0 && parent < size());
  int32_t child = node(parent).first_child;
  while (child >= 0 && node(child).token != token) child = node(child).next_sibling;
  return child;
}

std::vector<int32_t> TokenTree::PathTo(int node_index) const {
  LS_CHECK(node_index >= 0 && node_index < size());
  std::vector<int32_t> path(static_cast<size_t>(node(node_index).depth) + 1);
  int32_t current = node_index;
  for (auto place = path.rbegin(); place != path.rend(); ++place) {
    *place = current;
    current = node(current).parent;
  }
  return path;
}

std::vector<int32_t> TokenTree::TokensTo(int node_index) const {
  LS_CHECK(node_index >= 0 && node_index < size());
  std::vector<int32_t> tokens(static_cast<size_t>(node(node_index).depth));
  int32_t current = node_index;
  for (auto place = tokens.rbegin(); place != tokens.rend(); ++place) {
    *place = node(current).token;
    current = node(current).parent;
  }
  return tokens;
}

// With one child per node a child is always added to the deepest node, so the tree is a chain exactly when it
// is as deep as it is large.
bool TokenTree::is_chain() const { return max_depth_ == size() - 1; }

TokenTree Pruned(const TokenTree& tree, const std::vector<bool>& keep) {
  LS_CHECK(keep.size() == static_cast<size_t>(tree.size()));
  TokenTree pruned(tree.node(0).token);
  std::vector<int32_t> moved(keep.size(), -1);  // where a node went; -1: dropped
  moved[0] = 0;
  for (int i = 1; i < tree.size(); ++i) {
    const TreeNode& node = tree.node(i);
    const int32_t parent = moved[static_cast<size_t>(node.parent)];
    if (parent < 0 || !keep[static_cast<size_t>(i)]) continue;
    moved[static_cast<size_t>(i)] = pruned.AddChild(parent, node.token, node.score, node.source);
  }
  return pruned;
}

}  // namespace longspec
