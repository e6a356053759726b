// SPDX-License-Identifier: Apache-2.0
//
// Token Recycling's memory: for every token of the vocabulary the candidates that the target last saw after
// it, most likely first. Its size depends on the vocabulary only. Not thread-safe.
//
// The file, little-endian: "LSRECYCL", u32 version 1, u32 candidates per token, u64 vocabulary size, then i32
// candidates[vocabulary size][candidates per token], -1 where none is known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longspec/status.h"
#include "sampling/logit_rows.h"

namespace longspec {

// The shape of Token Recycling's drafts (arXiv 2408.08696): a fixed imbalanced tree of
// candidate ranks, 80 nodes below the root.

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

class RecyclingTable {
 public:
  explicit RecyclingTable(int vocab_size)
      : candidates_(static_cast<size_t>(vocab_size) * kRecycledCandidates, kUnknown) {}

  // What Save wrote. kNotFound: there is no such file. Checks every number in it.
  static Result<RecyclingTable> Load(const std::string& path, int vocab_size);
  Status Save(const std::string& path) const;
  // The same of a file's bytes; `name` is what errors say.
  static Result<RecyclingTable> Parse(std::span<const std::byte> bytes, const std::string& name,
                                      int vocab_size);
  std::vector<std::byte> Bytes() const;

  // A row of the target's logits after `token`: its likeliest tokens replace what was known.
  // REQUIRES: as many logits as tokens in the vocabulary
  void Update(int32_t token, const LogitRow& logits);

  // The candidate of this rank, -1 if none is known.
  int32_t Candidate(int32_t token, int32_t rank) const {
    return candidates_[static_cast<size_t>(token) * kRecycledCandidates + static_cast<size_t>(rank)];
  }

  int vocab_size() const { return static_cast<int>(candidates_.size() / kRecycledCandidates); }
  size_t bytes() const { return candidates_.capacity() * sizeof(int32_t); }

 private:
  static constexpr int32_t kUnknown = -1;

  std::vector<int32_t> candidates_;  // (vocab_size, kRecycledCandidates)
};

}  // namespace longspec
