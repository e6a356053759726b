// SPDX-License-Identifier: Apache-2.0
#include "draft/growing_drafter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longspec {

namespace {

const TreeShape kAsDeepAsItIsWorth = {.kind = TreeShape::Kind::kBestFirst,
                                      .max_depth = std::numeric_limits<int>::max()};

}  // namespace

DraftTask GrowingDrafter::Draft(const DraftBudget& budget, std::span<const int32_t> committed,
                                TokenTree& tree, PassMeeting& meeting) {
  const Result<int> levels = BeginTree(committed);
  LS_CO_TRY(levels.status());
  if (*levels <= 0) co_return Status();
  meeting_ = &meeting;
  // Where the model ends an adviser goes on, in trees that are as deep as they are worth.
  const bool goes_on = mixture_ != nullptr && shape_.kind == TreeShape::Kind::kBestFirst;
  const int deepest = mixture_ == nullptr ? budget.max_depth : mixture_->max_depth();
  const DraftBudget whole = {.max_nodes = budget.max_nodes,
                             .max_depth = goes_on ? deepest : std::min(deepest, *levels)};
  DraftBudget own = budget;
  own.max_depth = std::min({own.max_depth, *levels, goes_on ? shape_.max_depth : *levels});
  GuidedGrowth guided(*this, mixture_, own, kDiceOfModels, committed);
  co_return co_await GrowTree(goes_on ? kAsDeepAsItIsWorth : shape_, whole, guided, tree);
}

namespace {

// Candidates looked at for each node where dice or an adviser may favour an unlikely one.
constexpr int kCandidates = 64;

}  // namespace

DraftTask GuidedGrowth::Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                               std::vector<std::vector<TokenScore>>& next) {
  // A child is no likelier than its parent, so a model that is not asked about a node is not asked about what
  // follows it.
  asked_.clear();
  for (const int32_t i : which) {
    if (IsWorthAsking(nodes[static_cast<size_t>(i)])) asked_.push_back(i);
  }
  if (asked_.size() == which.size()) {
    LS_CO_TRY(co_await model_.Expand(nodes, which, Candidates(k), next));
  } else {
    answers_.clear();
    if (!asked_.empty()) LS_CO_TRY(co_await model_.Expand(nodes, asked_, Candidates(k), answers_));
    next.assign(which.size(), {});
    for (size_t i = 0, at = 0; i < which.size() && at < asked_.size(); ++i) {
      if (which[i] == asked_[at]) next[i] = std::move(answers_[at++]);
    }
  }
  for (size_t i = 0; i < which.size(); ++i) Refine(nodes, which[i], k, next[i]);
  co_return Status();
}

bool GuidedGrowth::IsWorthAsking(const GrownNode& node) const {
  if (node.depth >= budget_.max_depth) return false;
  return mixture_ == nullptr || node.depth == 0 || node.log_prob >= std::log(budget_.least_chance);
}

int GuidedGrowth::Candidates(int k) const {
  const bool more = budget_.foresight.has_dice() || mixture_ != nullptr;
  return more ? std::max(k, kCandidates) : k;
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
  budget_.foresight.RefineDistribution(dice_, {.committed = committed_, .drafted = path_},
                                       std::max(rest, 0.0), guesses_);
  next.clear();
  for (const Guess& guess : guesses_) {
    if (std::ssize(next) == k) break;
    next.push_back({.token = guess.token, .log_prob = std::log(guess.chance)});
  }
}

}  // namespace longspec
