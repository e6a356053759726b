// SPDX-License-Identifier: Apache-2.0
#include "draft/guided_growth.h"

#include <algorithm>
#include <cmath>

namespace longspec {
namespace {

// Candidates looked at for each node where dice or an adviser may favour an unlikely one.
constexpr int kCandidates = 64;

}  // namespace

DraftTask GuidedGrowth::Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                               std::vector<std::vector<TokenScore>>& next) {
  // Nodes come level by level, so a model that was not asked about one is not asked about what follows it.
  if (nodes[static_cast<size_t>(which[0])].depth < max_levels_) {
    const bool more = foresight_.has_dice() || mixture_ != nullptr;
    LS_CO_TRY(co_await model_.Expand(nodes, which, more ? std::max(k, kCandidates) : k, next));
  } else {
    next.assign(which.size(), {});
  }
  for (size_t i = 0; i < which.size(); ++i) Refine(nodes, which[i], k, next[i]);
  co_return Status();
}

void GuidedGrowth::Refine(std::span<const GrownNode> nodes, int32_t node, int k,
                          std::vector<TokenScore>& next) {
  path_.clear();
  for (; node > 0; node = nodes[static_cast<size_t>(node)].parent) {
    path_.push_back(nodes[static_cast<size_t>(node)].token);
  }
  std::reverse(path_.begin(), path_.end());
  guesses_.clear();
  for (const TokenScore& score : next) {
    guesses_.push_back({.token = score.token, .chance = std::exp(score.log_prob)});
  }
  if (mixture_ != nullptr) mixture_->Mix(path_, guesses_);
  double rest = 1;
  for (const Guess& guess : guesses_) rest -= guess.chance;
  foresight_.RefineDistribution(dice_, {.committed = committed_, .drafted = path_}, std::max(rest, 0.0),
                                guesses_);
  next.clear();
  for (const Guess& guess : guesses_) {
    if (std::ssize(next) == k) break;
    next.push_back({.token = guess.token, .log_prob = std::log(guess.chance)});
  }
}

}  // namespace longspec
