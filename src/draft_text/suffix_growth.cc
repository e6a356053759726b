// SPDX-License-Identifier: Apache-2.0
#include "draft_text/suffix_growth.h"

#include <algorithm>

#include "base/size.h"

namespace longspec {
namespace {

// A max-heap keeps the best candidate in front.
constexpr auto kWorse = [](const auto& a, const auto& b) {
  return a.score != b.score ? a.score < b.score : a.order > b.order;
};

constexpr int kRefined = 8;  // continuations that dice choose among

}  // namespace

void SuffixGrower::Discover(const SuffixIndex& index, const SuffixContext& context,
                            const SuffixLimits& limits, const Candidate& parent, const SuffixDraft& draft) {
  if (parent.depth >= limits.max_depth) return;
  const int most = limits.foresight.has_dice() ? std::max(limits.width, kRefined) : limits.width;
  index.Continuations(context, most, continuations_);
  guesses_.clear();
  double rest = 1;
  for (const Continuation& c : continuations_) {
    guesses_.push_back({.token = c.token, .chance = c.share});
    rest -= c.share;
  }
  path_.resize(static_cast<size_t>(parent.depth));
  for (int32_t at = parent.parent, depth = parent.depth; at >= 0; at = draft.nodes[Z(at)].parent) {
    path_[Z(--depth)] = draft.nodes[Z(at)].token;
  }
  limits.foresight.Refine(kDiceOfCounts, {.committed = limits.committed, .drafted = path_},
                          std::max(rest, 0.0), guesses_);
  int n = 0;
  for (const Guess& guess : guesses_) {
    const double score = parent.score * guess.chance;
    if (n++ == limits.width || score <= 0 || score < limits.min_prob) break;
    const auto c = std::ranges::find(continuations_, guess.token, &Continuation::token);
    heap_.push_back({.score = score,
                     .order = n_discovered_++,
                     .parent = parent.parent,
                     .token = guess.token,
                     .depth = parent.depth + 1,
                     .context = c->context});
    std::push_heap(heap_.begin(), heap_.end(), kWorse);
  }
}

SuffixDraft SuffixGrower::Grow(const SuffixIndex& index, const SuffixContext& context,
                               const SuffixLimits& limits) {
  SuffixDraft draft;
  heap_.clear();
  n_discovered_ = 0;
  Discover(index, context, limits,
           {.score = 1, .order = 0, .parent = -1, .token = -1, .depth = 0, .context = {}}, draft);
  while (!heap_.empty() && static_cast<int>(draft.nodes.size()) < limits.max_nodes) {
    std::pop_heap(heap_.begin(), heap_.end(), kWorse);
    Candidate best = heap_.back();
    heap_.pop_back();
    draft.nodes.push_back({.token = best.token, .parent = best.parent, .score = best.score});
    draft.score += best.score;
    best.parent = static_cast<int32_t>(draft.nodes.size()) - 1;  // of what is discovered behind it
    Discover(index, best.context, limits, best, draft);
  }
  return draft;
}

void AddToTree(const SuffixDraft& draft, TokenTree& tree) {
  std::vector<int> added;
  for (const SuffixDraft::Node& node : draft.nodes) {
    const int parent = node.parent < 0 ? 0 : added[static_cast<size_t>(node.parent)];
    added.push_back(tree.AddChild(parent, node.token, static_cast<float>(node.score)));
  }
}

}  // namespace longspec
