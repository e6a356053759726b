// SPDX-License-Identifier: Apache-2.0
//
// Trees as their specifications say them, for tests: search that knows nothing of levels run in passes, of
// rings or of slots.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "draft/testing/reference_math.h"
#include "draft/testing/table_model.h"
#include "tree/token_tree.h"

namespace longspec::testing {

// Largest difference of a path's log-probability that float32 arithmetic may make.
inline constexpr double kBound = 1e-3;

using Scores = std::map<Path, double>;              // log-probabilities of paths
using Next = std::function<Vec(const Path& path)>;  // log-probabilities of all tokens after a path

struct Scored {
  double log_prob = 0.0;
  Path path;
  bool operator<(const Scored& o) const { return log_prob < o.log_prob; }
};

inline Scored Child(const Scored& parent, size_t token, double log_prob) {
  Scored child{parent.log_prob + log_prob, parent.path};
  child.path.push_back(static_cast<int32_t>(token));
  return child;
}

// All children of all nodes of a level, the best `width` of them the next level.
inline Scores BeamSearch(const Next& next, const std::vector<int>& widths) {
  Scores scores;
  std::vector<Scored> level(1);
  for (const int width : widths) {
    std::vector<Scored> children;
    for (const Scored& node : level) {
      const Vec log_probs = next(node.path);
      for (size_t t = 0; t < log_probs.size(); ++t) children.push_back(Child(node, t, log_probs[t]));
    }
    std::sort(children.rbegin(), children.rend());
    children.resize(static_cast<size_t>(width));
    level = children;
    for (const Scored& node : level) scores[node.path] = node.log_prob;
  }
  return scores;
}

// The most probable path that is not in the tree yet, until there are n.
inline Scores BestFirstSearch(const Next& next, size_t n, size_t max_depth) {
  Scores scores;
  std::priority_queue<Scored> open;
  open.push({});
  while (scores.size() < n) {
    const Scored node = open.top();
    open.pop();
    if (!node.path.empty()) scores[node.path] = node.log_prob;
    if (node.path.size() == max_depth) continue;
    const Vec log_probs = next(node.path);
    for (size_t t = 0; t < log_probs.size(); ++t) open.push(Child(node, t, log_probs[t]));
  }
  return scores;
}

inline Scores Best(const Scores& scores, size_t n) {
  std::vector<Scored> order;
  for (const auto& [path, log_prob] : scores) order.push_back({log_prob, path});
  std::sort(order.rbegin(), order.rend());
  Scores best;
  for (size_t i = 0; i < n; ++i) best[order[i].path] = order[i].log_prob;
  return best;
}

inline void ExpectTree(const TokenTree& tree, const Scores& expected) {
  const std::map<Path, double> paths = PathsOf(tree);
  EXPECT_EQ(paths.size(), static_cast<size_t>(tree.size() - 1));  // siblings differ
  ASSERT_EQ(paths.size(), expected.size());
  for (const auto& [path, log_prob] : expected) {
    const auto found = paths.find(path);
    ASSERT_NE(found, paths.end());
    EXPECT_NEAR(std::log(found->second), log_prob, kBound);
  }
  for (const TreeNode& node : tree.nodes().subspan(1)) {
    EXPECT_EQ(tree.node(node.parent).depth, node.depth - 1);
    EXPECT_LE(node.score, tree.node(node.parent).score);
  }
}

}  // namespace longspec::testing
