// SPDX-License-Identifier: Apache-2.0
//
// The shape of Token Recycling's drafts (arXiv 2408.08696; research: 2.3): a fixed imbalanced tree of
// candidate ranks, 80 nodes below the root.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace longspec {

inline constexpr int kRecycledCandidates = 8;  // per token
inline constexpr std::array<int, 6> kRecyclingLevels = {8, 21, 25, 15, 8, 3};

struct RecyclingNode {
  int32_t parent;  // index of a node before it; -1: the root
  int32_t rank;    // which candidate of the parent's token
  int32_t depth;   // from 1
  float score;     // the estimated chance that it is reached
};

// Best nodes first, so that the first n are a tree, the best one of n nodes.
const std::vector<RecyclingNode>& RecyclingTree();

}  // namespace longspec
