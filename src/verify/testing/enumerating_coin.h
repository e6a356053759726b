// SPDX-License-Identifier: Apache-2.0
//
// A coin that follows every branch of a rule: the rule is run once per sequence of decisions, each with its
// exact probability. What Monte Carlo needs 10^5 samples to see, this sees to the last bits.
#pragma once

#include <numeric>
#include <vector>

#include "base/check.h"
#include "verify/testing/coin.h"

namespace longspec::testing {

class EnumeratingCoin final : public Coin {
 public:
  bool Flip(double probability) override {
    LS_CHECK(probability >= 0.0);
    const double p = probability < 1.0 ? probability : 1.0;
    return Choose({p, 1.0 - p}) == 0;
  }

  int Draw(std::span<const double> weights) override {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    LS_CHECK(total > 0.0);
    std::vector<double> probabilities;
    for (const double w : weights) {
      LS_CHECK(w >= 0.0);
      probabilities.push_back(w / total);
    }
    return Choose(std::move(probabilities));
  }

  // Runs run(coin), which takes its decisions from the coin and returns an outcome, once per branch, and
  // calls visit(outcome, probability) for each.
  template <typename Run, typename Visit>
  static void ForEachBranch(Run&& run, Visit&& visit) {
    EnumeratingCoin coin;
    do {
      coin.n_decided_ = 0;
      coin.probability_ = 1.0;
      const auto outcome = run(static_cast<Coin&>(coin));
      visit(outcome, coin.probability_);
    } while (coin.NextBranch());
  }

 private:
  struct Decision {
    std::vector<double> probabilities;
    size_t chosen;
  };

  static size_t NextPossible(const std::vector<double>& probabilities, size_t from) {
    while (from < probabilities.size() && !(probabilities[from] > 0.0)) ++from;
    return from;
  }

  int Choose(std::vector<double> probabilities) {
    if (n_decided_ == decisions_.size()) {
      const size_t first = NextPossible(probabilities, 0);
      decisions_.push_back({std::move(probabilities), first});
    }
    const Decision& decision = decisions_[n_decided_++];
    probability_ *= decision.probabilities[decision.chosen];
    return static_cast<int>(decision.chosen);
  }

  // Changes the last decision that has an alternative left; false if none has.
  bool NextBranch() {
    while (!decisions_.empty()) {
      Decision& last = decisions_.back();
      last.chosen = NextPossible(last.probabilities, last.chosen + 1);
      if (last.chosen < last.probabilities.size()) return true;
      decisions_.pop_back();
    }
    return false;
  }

  std::vector<Decision> decisions_;
  size_t n_decided_ = 0;
  double probability_ = 1.0;
};

}  // namespace longspec::testing
