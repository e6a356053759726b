// SPDX-License-Identifier: Apache-2.0
#include "draft_text/recycling_tree.h"

#include <algorithm>
#include <numeric>

namespace longspec {
namespace {

constexpr auto kBetter = [](const RecyclingNode& a, const RecyclingNode& b) { return a.score > b.score; };

// The best `n` children of nodes[begin, end).
std::vector<RecyclingNode> BestChildren(const std::vector<RecyclingNode>& nodes, size_t begin, int n) {
  std::vector<RecyclingNode> children;
  for (size_t i = begin; i < nodes.size(); ++i) {
    for (size_t rank = 0; rank < kRankShare.size(); ++rank) {
      children.push_back({.parent = static_cast<int32_t>(i),
                          .rank = static_cast<int32_t>(rank),
                          .depth = nodes[i].depth + 1,
                          .score = nodes[i].score * kRankShare[rank]});
    }
  }
  std::stable_sort(children.begin(), children.end(), kBetter);
  children.resize(static_cast<size_t>(n));
  return children;
}

std::vector<RecyclingNode> Build() {
  std::vector<RecyclingNode> nodes = {{.parent = -1, .rank = 0, .depth = 0, .score = 1.0F}};
  size_t level = 0;
  for (const int n : kRecyclingLevels) {
    const std::vector<RecyclingNode> children = BestChildren(nodes, level, n);
    level = nodes.size();
    nodes.insert(nodes.end(), children.begin(), children.end());
  }
  // Every score is below its parent's, so parents stay first; then their indices follow, without the root.
  std::vector<int32_t> order(nodes.size()), place(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return kBetter(nodes[static_cast<size_t>(a)], nodes[static_cast<size_t>(b)]);
  });
  std::vector<RecyclingNode> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto node = static_cast<size_t>(order[i]);
    place[node] = static_cast<int32_t>(i) - 1;
    if (node == 0) continue;
    sorted.push_back(nodes[node]);
    sorted.back().parent = place[static_cast<size_t>(nodes[node].parent)];
  }
  return sorted;
}

}  // namespace

const std::vector<RecyclingNode>& RecyclingTree() {
  static const std::vector<RecyclingNode> tree = Build();
  return tree;
}

}  // namespace longspec
