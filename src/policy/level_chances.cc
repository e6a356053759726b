// SPDX-License-Identifier: Apache-2.0
#include "policy/level_chances.h"

#include <algorithm>
#include <numeric>

#include "base/running_mean.h"

namespace longspec {

void LevelChances::Learn(const TokenTree& tree, std::span<const int> order, std::span<const double> reach,
                         int levels) {
  const auto n_levels = static_cast<size_t>(std::max(levels, tree.max_depth()));
  by_level_.resize(std::max(by_level_.size(), n_levels));
  for (auto& level : by_level_) level.clear();
  for (const int node : order) {
    by_level_[static_cast<size_t>(tree.node(node).depth) - 1].push_back(reach[static_cast<size_t>(node)]);
  }
  double above = 1;
  for (size_t i = 0; i < n_levels && above > 0; ++i) {
    const bool first = i == levels_.size();
    if (first) levels_.emplace_back();
    Level& level = levels_[i];
    const double rate = first ? 1 : RunningMean::kRate;
    level.above += rate * (above - level.above);
    level.reach.resize(std::max(level.reach.size(), by_level_[i].size()));
    by_level_[i].resize(level.reach.size());
    for (size_t k = 0; k < level.reach.size(); ++k)
      level.reach[k] += rate * (by_level_[i][k] - level.reach[k]);
    above = std::accumulate(by_level_[i].begin(), by_level_[i].end(), 0.0);
  }
}

double LevelChances::Append(int level, double above, std::vector<double>* reach) const {
  if (levels_.empty()) return 0;
  const Level& like = levels_[static_cast<size_t>(std::min(level, known()) - 1)];
  const double scale = above / like.above;
  const double sum = std::min(above, scale * std::accumulate(like.reach.begin(), like.reach.end(), 0.0));
  if (level > known()) {
    reach->push_back(sum);
  } else {
    for (const double chance : like.reach) reach->push_back(scale * chance);
  }
  return sum;
}

}  // namespace longspec
