// SPDX-License-Identifier: Apache-2.0
//
// A model for tests of tree growth: any function from a path of tokens to a distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "draft/tree_growth.h"

namespace longspec::testing {

using Path = std::vector<int32_t>;  // tokens below the root
using Distribution = std::function<std::vector<double>(const Path&)>;

class TableModel final : public GrowthModel {
 public:
  explicit TableModel(Distribution distribution) : distribution_(std::move(distribution)) {}

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    if (calls_before_failure >= 0 && calls_before_failure-- == 0) return IoError("the table failed");
    next.assign(which.size(), {});
    for (size_t i = 0; i < which.size(); ++i) {
      const Path path = PathOf(nodes, which[i]);
      ++n_expanded[path];
      const std::vector<double> p = distribution_(path);
      std::vector<TokenScore>& row = next[i];
      for (size_t t = 0; t < p.size(); ++t) row.push_back({static_cast<int32_t>(t), std::log(p[t])});
      std::stable_sort(row.begin(), row.end(),
                       [](const TokenScore& a, const TokenScore& b) { return a.log_prob > b.log_prob; });
      row.resize(std::min(row.size(), static_cast<size_t>(k)));
    }
    return {};
  }

  static Path PathOf(std::span<const GrownNode> nodes, int32_t i) {
    Path path;
    for (; i > 0; i = nodes[static_cast<size_t>(i)].parent)
      path.push_back(nodes[static_cast<size_t>(i)].token);
    std::reverse(path.begin(), path.end());
    return path;
  }

  std::map<Path, int> n_expanded;
  int calls_before_failure = -1;  // negative: never fails

 private:
  Distribution distribution_;
};

// A tree as its paths with their scores.
inline std::map<Path, double> PathsOf(const TokenTree& tree) {
  std::map<Path, double> paths;
  for (int i = 1; i < tree.size(); ++i) {
    paths[tree.TokensTo(i)] = static_cast<double>(tree.node(i).score);
  }
  return paths;
}

}  // namespace longspec::testing
