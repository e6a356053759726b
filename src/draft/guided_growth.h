// SPDX-License-Identifier: Apache-2.0
//
// A model's probabilities for growing a tree, mixed with an adviser's if there is one (mixture.h), which has
// the word alone where the budget says that the model is not asked any more and at unlikely nodes, and
// refined by what is known of the target's choice (foresight.h). Wraps the model for one call of GrowTree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/foresight.h"
#include "draft/mixture.h"
#include "draft/tree_growth.h"

namespace longspec {

class GuidedGrowth final : public GrowthModel {
 public:
  // `model` and `committed`, which ends with the tree's root, are borrowed.
  GuidedGrowth(GrowthModel& model, const DraftBudget& budget, const DiceModel& dice,
               std::span<const int32_t> committed)
      : model_(model),
        foresight_(budget.foresight),
        mixture_(budget.mixture),
        max_levels_(budget.max_levels),
        dice_(dice),
        committed_(committed) {}

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override;

 private:
  bool IsWorthAsking(const GrownNode& node) const;
  int Candidates(int k) const;  // of a node that is to have k children
  void Refine(std::span<const GrownNode> nodes, int32_t node, int k, std::vector<TokenScore>& next);

  GrowthModel& model_;
  const Foresight foresight_;
  Mixture* const mixture_;  // null: none
  const int max_levels_;
  const DiceModel dice_;
  const std::span<const int32_t> committed_;
  std::vector<int32_t> path_;
  std::vector<Guess> guesses_;
  std::vector<int32_t> asked_;
  std::vector<std::vector<TokenScore>> answers_;  // to these
};

}  // namespace longspec
