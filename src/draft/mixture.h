// SPDX-License-Identifier: Apache-2.0
//
// Two opinions on the next token made one: a draft model's, which knows the language and the target, and an
// adviser's, which knows this text by heart. The chance of a token is
//
//   w * model(t) + (1 - w) * adviser(t)
//
// with a weight for each degree of the adviser's certainty, learned as tokens come (the expectation step of a
// mixture of two). A mixture is right more often than either, where two trees side by side spend rows on
// both.
//
// One serves one sequence; what it has learned decides trees, never text. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"

namespace longspec {

class Mixture {
 public:
  explicit Mixture(Adviser& adviser) : adviser_(adviser) {}

  // A proposal begins, of a tree that may be so deep: where a model ends the adviser goes on.
  void Begin(int max_depth) {
    max_depth_ = max_depth;
    seen_.clear();
  }
  int max_depth() const { return max_depth_; }
  bool used() const { return !seen_.empty(); }  // since then, by a model

  // `guesses`: the model's likeliest tokens after the committed text and `path`; becomes both's, likeliest
  // first (equal ones by token). Empty: the model was not asked, and the adviser has the word.
  void Mix(std::span<const int32_t> path, std::vector<Guess>& guesses);

  // Whether this token after `path` is of the last proposal for what the adviser says of it rather than for
  // what the model does.
  bool IsAdvisers(std::span<const int32_t> path, int32_t token) const;

  // The last n_new tokens of the sequence followed what the last proposal was made for.
  void Learn(std::span<const int32_t> sequence, int n_new);

  // For tests: the model's weight beside an adviser whose likeliest token has this chance.
  double WeightBeside(double chance) const { return weights_[ClassOf(chance)].of_model; }

 private:
  static constexpr size_t kClasses = 8;
  static constexpr double kRate = 0.02;
  // Of the adviser's chances, less likely tokens are left out.
  static constexpr double kLeast = 0.002;

  static size_t ClassOf(double chance);

  struct Weight {
    double of_model = 0;
    double n_seen = 20;  // how many tokens what it begins with counts for
  };

  // What was said at a place of the proposal.
  struct Seen {
    std::vector<int32_t> path;
    std::vector<Guess> model, adviser;
    double weight = 0;  // the model's
    double most = 0;    // the adviser's likeliest token's chance
  };

  Adviser& adviser_;
  int max_depth_ = 0;
  // By class. The more certain the adviser is, the less a model says beside it.
  std::array<Weight, kClasses> weights_ = {{{0.7}, {0.6}, {0.5}, {0.4}, {0.3}, {0.2}, {0.1}, {0.05}}};
  std::vector<Seen> seen_;
};

}  // namespace longspec
