// SPDX-License-Identifier: Apache-2.0
#include "policy/asking.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "draft/pass_meeting.h"

namespace longspec {
namespace {

// Rows of what a member did not read that cost hardly more with its proposal than without them.
constexpr size_t kReadWithTree = 8;

}  // namespace

void AskingGain::Took(size_t member, double ms) {
  if (member >= ms_.size()) ms_.resize(member + 1);
  ms_[member].Add(ms);
}

size_t AskingGain::ClassOf(double expected) {
  constexpr std::array<double, kClasses - 1> kBounds = {0.5, 1, 2};
  return static_cast<size_t>(std::ranges::upper_bound(kBounds, expected) - kBounds.begin());
}

double AskingGain::Added(size_t of, size_t level) const {
  double of_all = kAddedAtFirst;
  for (size_t i = 0; i <= level; ++i) of_all = added_of_all_[i].Beside(i == 0 ? of_all : kNextLevel * of_all);
  return added_[of][level].Beside(of_all);
}

template <typename Gain, typename Visit>
void AskingGain::VisitBeliefs(Gain& gain, const Visit& visit) {
  constexpr double kMost = 1e9;  // tokens, ms, rounds
  const auto visit_mean = [&](auto& mean, double least) {
    visit(mean.value, least, kMost);
    visit(mean.n, 0.0, kMost);
  };
  visit(gain.patience_, 1.0, kMostPatience);
  visit(gain.waited_ms_, 0.0, kMost);
  visit(gain.token_ms_, 0.0, kMost);
  visit_mean(gain.level_ms_, 0);
  visit_mean(gain.row_ms_, 0);
  for (auto& mean : gain.added_of_all_) visit_mean(mean, -kMost);
  for (auto& by_level : gain.added_) {
    for (auto& mean : by_level) visit_mean(mean, -kMost);
  }
}

std::vector<double> AskingGain::Beliefs() const {
  std::vector<double> numbers;
  if (added_of_all_[0].n == 0) return numbers;
  VisitBeliefs(*this, [&](double number, double least, double most) {
    numbers.push_back(std::clamp(number, least, most));
  });
  for (size_t i = 0; i < std::min(ms_.size(), kMostMembers); ++i) numbers.push_back(ms_[i].value());
  return numbers;
}

bool AskingGain::Believe(std::span<const double> beliefs) {
  AskingGain read;
  bool good = true;
  VisitBeliefs(read, [&](double& number, double least, double most) {
    good = good && !beliefs.empty() && beliefs.front() >= least && beliefs.front() <= most;
    if (!good) return;
    number = beliefs.front();
    beliefs = beliefs.subspan(1);
  });
  if (!good || beliefs.size() > kMostMembers) return false;
  for (const double ms : beliefs) {
    if (!std::isfinite(ms) || ms < 0) return false;
    read.ms_.emplace_back();
    if (ms > 0) read.ms_.back().Add(ms);
  }
  *this = std::move(read);
  return true;
}

int AskingGain::Levels(double expected, double token_ms, int max_levels, size_t unread) {
  max_levels = std::min(max_levels, kMaxLevels);
  if (!std::isfinite(expected)) expected = 0;
  const size_t of = ClassOf(expected);
  // Of a generation that begins nothing is known: it will be as fast as the last one.
  if (token_ms > 0) token_ms_ = token_ms;
  token_ms = token_ms_;
  const double reading_ms = row_ms_.value * static_cast<double>(unread);
  int best = 0;
  double gain = -reading_ms / kReadServes, most = 0;
  for (int level = 1; level <= max_levels; ++level) {
    gain += kWorth * token_ms * Added(of, Index(level - 1)) - level_ms_.value;
    if (gain > most) best = level, most = gain;
  }
  if (token_ms <= 0) best = unread == 0 ? 1 : 0;
  waited_ms_ += (1 + expected) * token_ms;
  const bool try_it =
      waited_ms_ * kProbeShare > patience_ * (level_ms_.value + reading_ms) && of + 1 < kClasses;
  trial_ = best == 0;
  if (trial_ && !try_it) return 0;
  const bool deeper = trial_ || (n_asked_ + 1) % kDeeperEvery == 0;
  return std::min(best + (deeper ? 1 : 0), max_levels);
}

void AskingGain::Answered() {
  waited_ms_ = 0;
  patience_ = trial_ ? std::min(2 * patience_, kMostPatience) : 1;
  if (!trial_) ++n_asked_;
}

void AskingGain::Learn(double expected, std::span<const int> followed, double ms) {
  const size_t of = ClassOf(expected);
  const size_t n_levels = std::min<size_t>(followed.size() - 1, kMaxLevels);
  for (size_t i = 0; i < n_levels; ++i) {
    const int added = followed[i + 1] - followed[i];
    added_[of][i].Add(added);
    added_of_all_[i].Add(added);
  }
  if (followed.back() > followed.front()) patience_ = 1;
  if (!std::exchange(warm_, true) || n_levels == 0) return;
  AddTime(ms / static_cast<double>(n_levels), level_ms_);
}

DraftTask Asking::Draft(Portfolio& portfolio, const DraftBudget& budget, Prices prices,
                        std::span<const int32_t> committed, TokenTree& tree, PassMeeting& meeting) {
  const auto members = portfolio.members();
  portfolio.Begin(budget, committed);
  // Who takes time, and how much of that is reading. Looked up once: who has caught up has nothing left to
  // read.
  Asked asked = {.is_dear = std::vector<bool>(members.size())};
  size_t unread = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const size_t rows = members[i]->Unread(committed);
    if (rows > kReadWithTree) unread = std::max(unread, rows);
    asked.is_dear[i] = rows > kReadWithTree || gain_->IsDear(i, prices.dear_ms);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    if (asked.is_dear[i]) continue;
    LS_CO_TRY(co_await AskOne(portfolio, i, budget, prices.dear_ms, committed, meeting));
  }
  portfolio.Merge(budget.max_nodes, tree);
  if (std::ranges::find(asked.is_dear, true) == asked.is_dear.end()) co_return Status();
  for (const TreeNode& node : tree.nodes().subspan(1)) asked.expected += static_cast<double>(node.score);
  asked.levels = gain_->Levels(asked.expected, prices.token_ms, budget.max_depth, unread);
  if (asked.levels == 0) co_return Status();
  if (unread > 0) {
    const double start = meeting.Ms();
    for (size_t i = 0; i < members.size(); ++i) {
      if (asked.is_dear[i]) LS_CO_TRY(members[i]->CatchUp(committed));
    }
    gain_->CaughtUp(unread, meeting.Ms() - start);
  }
  asked.without = tree;
  const double start = meeting.Ms();
  bool any_answer = false;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!asked.is_dear[i]) continue;
    DraftBudget own = budget;
    if (members[i]->pays_by_level()) own.max_depth = asked.levels;
    LS_CO_TRY(co_await AskOne(portfolio, i, own, prices.dear_ms, committed, meeting));
    any_answer = any_answer || portfolio.proposal(i).size() > 1;
  }
  asked.ms = meeting.Ms() - start;
  if (!any_answer) co_return Status();  // who was not ready to say anything tells nothing of what it gains
  gain_->Answered();
  tree = TokenTree(committed.back());
  portfolio.Merge(budget.max_nodes, tree);
  asked_ = std::move(asked);
  co_return Status();
}

DraftTask Asking::AskOne(Portfolio& portfolio, size_t member, const DraftBudget& budget, double dear_ms,
                         std::span<const int32_t> committed, PassMeeting& meeting) {
  const double start = meeting.Ms();
  LS_CO_TRY(co_await portfolio.Ask(member, budget, committed, meeting));
  if (portfolio.proposal(member).size() > 1 || !gain_->IsDear(member, dear_ms))
    gain_->Took(member, meeting.Ms() - start);
  co_return Status();
}

void Asking::Learn(const TokenTree& verified, std::span<const int32_t> text) {
  if (!asked_) return;
  followed_.clear();
  for (int levels = 0; levels <= asked_->levels; ++levels)
    followed_.push_back(FollowedBy(*asked_, levels, verified, text));
  gain_->Learn(asked_->expected, followed_, asked_->ms);
  asked_.reset();
}

// How many of these tokens are on a path of what was verified, with so many levels of dear members' guesses.
// Without them, as many nodes of the others' tree would have been: its best, which come first.
int Asking::FollowedBy(const Asked& asked, int levels, const TokenTree& verified,
                       std::span<const int32_t> text) {
  int with = 0, without = 0, n = 0;
  const auto is_theirs = [&](int node) {
    return asked.is_dear[static_cast<size_t>(verified.node(node).source)];
  };
  for (const int32_t token : text) {
    if (with >= 0) with = verified.FindChild(with, token);
    if (without >= 0) without = asked.without.FindChild(without, token);
    if (without >= verified.size()) without = -1;
    if (levels == 0 ? without < 0 : with < 0) break;
    if (levels > 0 && n >= levels && without < 0 && is_theirs(with)) break;
    ++n;
  }
  return n;
}

}  // namespace longspec
