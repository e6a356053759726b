// SPDX-License-Identifier: Apache-2.0
//
// A model's probabilities for growing a tree, refined by what is known of the target's choice (foresight.h).
// Wraps the model for one call of GrowTree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/foresight.h"
#include "draft/tree_growth.h"

namespace longspec {

class GuidedGrowth final : public GrowthModel {
 public:
  // `model` and `committed`, which ends with the tree's root, are borrowed.
  GuidedGrowth(GrowthModel& model, const Foresight& foresight, const DiceModel& dice,
               std::span<const int32_t> committed)
      : model_(model), foresight_(foresight), dice_(dice), committed_(committed) {}

  Status Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                std::vector<std::vector<TokenScore>>& next) override;

 private:
  void Refine(std::span<const GrownNode> nodes, int32_t node, int k, std::vector<TokenScore>& next);

  GrowthModel& model_;
  const Foresight foresight_;
  const DiceModel dice_;
  const std::span<const int32_t> committed_;
  std::vector<int32_t> path_;
  std::vector<Guess> guesses_;
};

}  // namespace longspec
