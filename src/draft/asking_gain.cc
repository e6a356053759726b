// SPDX-License-Identifier: Apache-2.0
#include "draft/asking_gain.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace longspec {

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

}  // namespace longspec
