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

#include "draft/testing/table_model.h"
#include "draft_model/testing/reference_math.h"
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

// The best `n` children of all of these nodes, in order.
inline std::vector<Scored> BestChildren(const Next& next, const std::vector<Scored>& nodes, size_t n) {
  std::vector<Scored> children;
  for (const Scored& node : nodes) {
    const Vec log_probs = next(node.path);
    for (size_t t = 0; t < log_probs.size(); ++t) children.push_back(Child(node, t, log_probs[t]));
  }
  std::sort(children.rbegin(), children.rend());
  children.resize(std::min(children.size(), n));
  return children;
}

// All children of all nodes of a level, the best `width` of them the next level.
inline Scores BeamSearch(const Next& next, const std::vector<int>& widths) {
  Scores scores;
  std::vector<Scored> level(1);
  for (const int width : widths) {
    level = BestChildren(next, level, static_cast<size_t>(width));
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

// OPT-Tree: a level more, of the n best there, while the sum of chances of the n
// best of all levels grows by more than `threshold`. A level that is drawn and not counted is never seen, so
// trees have at most max_depth - 1 levels.
inline Scores OptTreeSearch(const Next& next, size_t n, double threshold, int max_depth) {
  Scores best;
  std::vector<Scored> level(1);
  double expected = 0;
  for (int n_levels = 1; n_levels < max_depth; ++n_levels) {
    level = BestChildren(next, level, n);
    for (const Scored& node : level) best[node.path] = node.log_prob;
    best = Best(best, n);
    double sum = 0;
    for (const auto& [path, log_prob] : best) sum += std::exp(log_prob);
    if (sum - expected <= threshold) break;
    expected = sum;
  }
  return best;
}

// EAGLE-2: k children of each of the k best of a level, on n_loops levels below the
// first, and the best `n` of all that were found.
inline Scores Eagle2Search(const Next& next, size_t k, int n_loops, size_t n) {
  Scores scores;
  std::vector<Scored> beam(1);
  for (int level = 0; level <= n_loops; ++level) {
    std::vector<Scored> found;
    for (const Scored& node : beam) {
      for (const Scored& child : BestChildren(next, {node}, k)) found.push_back(child);
    }
    for (const Scored& node : found) scores[node.path] = node.log_prob;
    std::sort(found.rbegin(), found.rend());
    found.resize(std::min(found.size(), k));
    beam = found;
  }
  return Best(scores, n);
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

// A scene's proposal is what `search` finds in its specification. Returns its depth.
template <typename Scene, typename Search>
int ExpectTreeOf(const Search& search, Scene& scene, int max_nodes, int max_depth) {
  const TokenTree proposed = scene.Propose(max_nodes, max_depth);
  ExpectTree(proposed, search(scene.Specified()));
  return proposed.max_depth();
}

}  // namespace longspec::testing
