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

// How likely a token is to be followed by its candidate of each rank: about what a target's own recent
// candidates reach on mixed text. Only their order of magnitude matters, for the shape.
inline constexpr std::array<float, kRecycledCandidates> kRankShare = {0.52F,  0.14F,  0.075F, 0.05F,
                                                                      0.035F, 0.027F, 0.021F, 0.017F};

struct RecyclingNode {
  int32_t parent;  // index of a node before it; -1: the root
  int32_t rank;    // which candidate of the parent's token
  int32_t depth;   // from 1
  float score;     // the estimated chance that it is reached
};

// Best nodes first, so that the first n are a tree, the best one of n nodes.
const std::vector<RecyclingNode>& RecyclingTree();

}  // namespace longspec
