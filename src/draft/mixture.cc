// SPDX-License-Identifier: Apache-2.0
#include "draft/mixture.h"

#include <algorithm>

namespace longspec {
namespace {

double ChanceOf(std::span<const Guess> guesses, int32_t token) {
  const auto found = std::ranges::find(guesses, token, &Guess::token);
  return found == guesses.end() ? 0 : found->chance;
}

void SortByChance(std::vector<Guess>& guesses) {
  std::ranges::sort(guesses, [](const Guess& a, const Guess& b) {
    return a.chance != b.chance ? a.chance > b.chance : a.token < b.token;
  });
}

}  // namespace

size_t Mixture::ClassOf(double chance) {
  constexpr std::array<double, kClasses - 1> kBounds = {0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95};
  return static_cast<size_t>(std::ranges::upper_bound(kBounds, chance) - kBounds.begin());
}

void Mixture::Mix(std::span<const int32_t> path, std::vector<Guess>& guesses) {
  Seen seen = {.path = {path.begin(), path.end()}, .model = guesses, .adviser = {}};
  adviser_.Advise(path, kLeast, seen.adviser);
  SortByChance(seen.adviser);
  seen.most = seen.adviser.empty() ? 0 : seen.adviser.front().chance;
  const double weight = guesses.empty() ? 0 : WeightBeside(seen.most);
  seen.weight = weight;
  for (Guess& guess : guesses) guess.chance *= weight;
  for (const Guess& guess : seen.adviser) {
    const auto known = std::ranges::find(guesses, guess.token, &Guess::token);
    const double chance = (1 - weight) * guess.chance;
    if (known == guesses.end()) {
      guesses.push_back({.token = guess.token, .chance = chance});
    } else {
      known->chance += chance;
    }
  }
  SortByChance(guesses);
  if (seen.model.empty()) return;  // nothing to be learned from
  seen_.push_back(std::move(seen));
}

bool Mixture::IsAdvisers(std::span<const int32_t> path, int32_t token) const {
  const auto place =
      std::ranges::find_if(seen_, [&](const Seen& seen) { return std::ranges::equal(seen.path, path); });
  if (place == seen_.end()) return true;  // nobody else was asked there
  return (1 - place->weight) * ChanceOf(place->adviser, token) >
         place->weight * ChanceOf(place->model, token);
}

void Mixture::Learn(std::span<const int32_t> sequence, int n_new) {
  const auto added = sequence.last(std::min(static_cast<size_t>(n_new), sequence.size()));
  for (const Seen& seen : seen_) {
    const size_t depth = seen.path.size();
    if (depth >= added.size() || !std::ranges::equal(seen.path, added.first(depth))) continue;
    const int32_t token = added[depth];
    Weight& weight = weights_[ClassOf(seen.most)];
    const double model = weight.of_model * ChanceOf(seen.model, token);
    const double adviser = (1 - weight.of_model) * ChanceOf(seen.adviser, token);
    if (model + adviser > 0) {
      const double rate = std::max(kRate, 1 / ++weight.n_seen);
      weight.of_model += rate * (model / (model + adviser) - weight.of_model);
    }
  }
  seen_.clear();
}

}  // namespace longspec
