// SPDX-License-Identifier: Apache-2.0
#include "policy/acceptance_table.h"

#include <algorithm>
#include <bit>

namespace longspec {
namespace {

// Of equal width from 0.1 to 0.9. Outside each reaches half as far as the one before: towards 1, too, for how
// far a chain of sure guesses pays is decided by how seldom one of them is wrong.
constexpr int kWideBuckets = 10, kLowBuckets = 4, kHighBuckets = 4;
constexpr double kLeastWide = 0.1;
// What a source's scores are worth as a whole: accepted over promised, as if this many promises had been
// kept.
constexpr double kTrustKeep = 0.98, kTrustWeight = 6.0;
constexpr double kLeft = 0.25;  // of what is known, in another text
constexpr double kLeastLikely = 0.002, kMostLikely = 0.995;
// Of each level: what an observation leaves of those before it, and for how many observations the coarser
// level counts.
struct Level {
  double keep, prior_weight;
};
constexpr std::array<Level, 3> kLevel = {{{0.995, 50.0}, {0.99, 50.0}, {0.99, 64.0}}};

uint32_t DepthBucket(int depth) {
  return static_cast<uint32_t>(std::bit_width(static_cast<unsigned>(depth)));
}

// How often kLeastWide has to be halved to be no more than x, but for the last time; at most n_most.
int Halvings(double x, int n_most) {
  int n = 0;
  for (double least = kLeastWide / 2; n < n_most && x < least; least /= 2) ++n;
  return n;
}

int ScoreBucket(double score) {
  if (score < kLeastWide) return kWideBuckets + Halvings(score, kLowBuckets - 1);
  if (score < 1 - kLeastWide) return static_cast<int>(score * kWideBuckets);
  return kWideBuckets + kLowBuckets + Halvings(1 - score, kHighBuckets - 1);
}

}  // namespace

int ContextBucket(int n_tokens) {
  return n_tokens < 1024 ? 0 : std::bit_width(static_cast<unsigned>(n_tokens) / 1024);
}

int ContextBucketFrom(int bucket) { return bucket == 0 ? 0 : 1024 << (bucket - 1); }

NodeKind KindOf(const TokenTree& tree, int node, int context) {
  const TreeNode& n = tree.node(node);
  const double parent = n.parent == 0 ? 1.0 : static_cast<double>(tree.node(n.parent).score);
  const double score = parent > 0 ? static_cast<double>(n.score) / parent : 0.0;
  const double chance = score > 0 ? std::min(score, 1.0) : 0.0;  // also of NaN
  return {.source = n.source, .depth = n.depth, .score = chance, .context = context};
}

std::array<AcceptanceTable::Key, AcceptanceTable::kLevels> AcceptanceTable::Keys(const NodeKind& kind) {
  const int score = ScoreBucket(kind.score);
  // Six bits a field, each plus one so that a coarser key is no finer one's.
  const Key coarse = (static_cast<Key>(kind.source) & 0xFF) << 18 | (static_cast<Key>(score) + 1) << 12;
  const Key middle = coarse | (DepthBucket(kind.depth) + 1) << 6;
  return {coarse, middle, middle | (static_cast<Key>(ContextBucket(kind.context)) + 1)};
}

double AcceptanceTable::Trust(int source) const {
  const auto cell = trust_.find(source);
  if (cell == trust_.end()) return 1.0;
  return (cell->second.accepted + kTrustWeight) / (cell->second.promised + kTrustWeight);
}

double AcceptanceTable::Estimate(const NodeKind& kind) const {
  double estimate = std::clamp(kind.score * Trust(kind.source), kLeastLikely, kMostLikely);
  const auto keys = Keys(kind);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto cell = cells_.find(keys[i]);
    if (cell == cells_.end()) break;  // finer ones were not seen either
    const double weight = kLevel[i].prior_weight;
    estimate = (cell->second.accepted + weight * estimate) / (cell->second.tried + weight);
  }
  return estimate;
}

void AcceptanceTable::BeginText() {
  // Of what 1 / (1 - keep) observations are, which the finer levels and the sums of promises hold.
  constexpr double kMostTried = kLeft * 100, kMostPromised = kLeft * 50;
  for (auto& [key, cell] : cells_) cell.Keep(std::min(1.0, kMostTried / cell.tried));
  for (auto& [source, promises] : trust_) promises.Keep(std::min(1.0, kMostPromised / promises.promised));
}

void AcceptanceTable::Fade() {
  for (auto& [key, cell] : cells_) cell.Keep(kLeft);
  for (auto& [source, promises] : trust_) promises.Keep(kLeft);
}

void AcceptanceTable::Add(const NodeKind& kind, bool accepted) {
  Promises& promises = trust_[kind.source];
  promises.promised = kTrustKeep * promises.promised + kind.score;
  promises.accepted = kTrustKeep * promises.accepted + (accepted ? 1 : 0);
  const auto keys = Keys(kind);
  for (size_t i = 0; i < keys.size(); ++i) {
    Cell& cell = cells_[keys[i]];
    cell.tried = kLevel[i].keep * cell.tried + 1;
    cell.accepted = kLevel[i].keep * cell.accepted + (accepted ? 1 : 0);
  }
}

}  // namespace longspec
