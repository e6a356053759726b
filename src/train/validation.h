// SPDX-License-Identifier: Apache-2.0
//
// Looking at how well a draft foresees text that it is not trained on.
#pragma once

#include <vector>

#include "train/feature_set.h"
#include "train/trainee.h"
#include "train/validation_result.h"

namespace longspec::train {

// The best static tree of so many nodes: rates[j][r] is the chance that at depth j + 1 the draft's choice of
// rank r is right. Its nodes as paths of ranks, parents before children.
std::vector<std::vector<int>> BestTree(const std::vector<std::vector<double>>& rates, int n_nodes);

// Looks at drafts of one target on the same sequences again and again.
class Validator {
 public:
  // All are borrowed.
  Validator(const FeatureSet& set, const ShardNeeds& needs, const LabelOptions& labels);

  // At plain positions, lags 1 .. kValidatedLags. Nothing is changed; one thread.
  Validation Look(const Trainee& trainee);

 private:
  const FeatureSet& set_;
  ShardNeeds needs_;
  const LabelOptions& labels_;
  std::vector<std::vector<int64_t>> choices_;  // by sequence: what is right, as rows of the draft's head
};

}  // namespace longspec::train
